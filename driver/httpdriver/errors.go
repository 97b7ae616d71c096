package httpdriver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// problem is an answer of the service that is an error or a refusal.
type problem struct {
	wire.Problem
	kind error // one of package driver, or nil
}

func (p *problem) Error() string {
	return fmt.Sprintf("%s (%d)", cmp.Or(p.Detail, p.Title), p.Status)
}

func (p *problem) Unwrap() error { return p.kind }

// Advice returns how to solve the problem, or "".
func (p *problem) Advice() string {
	switch p.cause() {
	case "unauthenticated":
		return "the service requires a token, as in https://:token@host or ?token-file=FILE, or a certificate, ?cert=FILE&key=FILE"
	case "forbidden":
		return "the operator of the service grants the rights; see --auth-file of leasehold serve"
	case "unavailable":
		return "the service is up, and its own store is not"
	}
	return ""
}

// kinds gives the meaning of the service's causes. Unavailable means that the request
// certainly had no effect; without a meaning the outcome is unknown. Causes that are an
// answer of the store are in [problem.reply].
var kinds = map[string]error{
	"mismatch": driver.ErrMismatch, "invalid": driver.ErrInvalid, "too-large": driver.ErrInvalid, "unsupported": errors.ErrUnsupported,
	"unauthenticated": driver.ErrPermanent, "forbidden": driver.ErrPermanent, "not-found": driver.ErrPermanent,
	"method-not-allowed": driver.ErrPermanent, "too-many-waiters": driver.ErrUnavailable,
	"unavailable": driver.ErrUnavailable, "overloaded": driver.ErrUnavailable, "draining": driver.ErrUnavailable,
}

// problemOf reads an answer that is not a success. It is the service's own if it is a
// problem of a known type; the status alone does not show that.
func problemOf(res *http.Response, text []byte) error {
	p := new(problem)
	media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil || media != wire.ProblemMedia || json.Unmarshal(text, &p.Problem) != nil || p.cause() == "" {
		return strangerOf(res, text)
	}
	p.Status, p.kind = res.StatusCode, kinds[p.cause()]
	return p
}

// cause returns the name of the cause at the end of the type, or "" if the type is not the
// service's.
func (p *problem) cause() string {
	name, ok := strings.CutPrefix(p.Type, wire.ProblemTypes)
	if !ok {
		return ""
	}
	return name
}

// reply returns the store's answer about the lease id, if the problem is one.
func (p *problem) reply(id string) (driver.Reply, bool) {
	r := driver.Reply{Clock: time.Duration(p.Clock) * time.Microsecond}
	if p.LeaseID != "" && p.LeaseID != id {
		return r, false
	}
	switch p.cause() {
	case wire.CauseHeld:
		r.State, r.RetryAfter = driver.Busy, p.FreeIn.Duration()
		for i := range p.Holders {
			r.Holders = append(r.Holders, p.Holders[i].Holder())
		}
	case "moved":
		r.State = driver.Busy
	case wire.CauseGone, wire.CauseNotHeld:
	case wire.CauseReleased:
		r.Replayed = true
	case wire.CauseBroken:
		r.Broken, r.Reason = true, p.Reason
	default:
		return r, false
	}
	return r, true
}

// stranger is an answer of a gateway, a proxy or another program instead of the service.
// It is unknown whether the request reached the service.
type stranger struct {
	status int
	text   string
}

func (s *stranger) Error() string { return s.text }

// Advice returns how to find the cause of the answer.
func (s *stranger) Advice() string {
	if s.status == http.StatusNotFound {
		return "is the URL that of a leasehold serve? It ends with the path of a proxy, if the service is behind one, as in https://host/locks"
	}
	return "check that the URL leads to leasehold serve, and that a proxy before it passes on its answers"
}

func strangerOf(res *http.Response, text []byte) error {
	if res.StatusCode == http.StatusBadRequest && wantsTLS(string(text)) {
		return errWantsTLS
	}
	status := strings.TrimSpace(fmt.Sprintf("%d %s", res.StatusCode, http.StatusText(res.StatusCode)))
	s := &stranger{status: res.StatusCode, text: "the answer is " + status + ", and not that of a leasehold service"}
	if to := res.Header.Get("Location"); to != "" && res.StatusCode < http.StatusBadRequest {
		s.text += fmt.Sprintf("; it leads to %.200q, which is not followed", to)
	}
	return s
}

// tooLarge reports whether the service, or a program on the way, refused a request as too
// large.
func tooLarge(err error) bool {
	var p *problem
	if errors.As(err, &p) {
		return p.cause() == "too-large"
	}
	var s *stranger
	return errors.As(err, &s) && s.status == http.StatusRequestEntityTooLarge
}
