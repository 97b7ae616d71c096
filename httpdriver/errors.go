package httpdriver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// problem is an answer that is an error, or a no.
type problem struct {
	wire.Problem
	kind error // one of package driver, or nil
}

func (p *problem) Error() string {
	text := p.Title
	if p.Detail != "" {
		text = p.Detail
	}
	return fmt.Sprintf("%s (%d)", text, p.Status)
}

func (p *problem) Unwrap() error { return p.kind }

// problemOf reads an answer that is not a success. What does not come from a
// service, but from something in between, is judged by its status.
func problemOf(res *http.Response, text []byte) error {
	p := new(problem)
	if err := json.Unmarshal(text, &p.Problem); err != nil || p.Title == "" {
		p.Problem = wire.Problem{Title: "the answer is " + res.Status}
	}
	p.Status = res.StatusCode
	p.kind = kindOf(p.Status)
	return p
}

// kindOf is what a status says about a request. Unavailable is what certainly
// has had no effect.
func kindOf(status int) error {
	switch status {
	case http.StatusUnprocessableEntity:
		return driver.ErrMismatch
	case http.StatusNotImplemented:
		return errors.ErrUnsupported
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusNotFound:
		return driver.ErrUnavailable
	case http.StatusConflict, http.StatusGone:
		return nil
	}
	if status < http.StatusInternalServerError {
		return driver.ErrInvalid
	}
	return nil
}

// cause is the name of the cause that the type ends in.
func (p *problem) cause() string {
	name, _ := strings.CutPrefix(p.Type, wire.ProblemTypes)
	return name
}

// reply is the answer of the store, if the problem is one.
func (p *problem) reply() (driver.Reply, bool) {
	r := driver.Reply{Clock: time.Duration(p.Clock) * time.Microsecond}
	switch p.cause() {
	case wire.CauseHeld:
		r.State, r.Next = driver.Busy, p.FreeIn.Duration()
		for i := range p.Holders {
			r.Holders = append(r.Holders, p.Holders[i].Holder())
		}
	case wire.CauseGone, wire.CauseNotHeld:
	case wire.CauseReleased:
		r.Again = true
	case wire.CauseBroken:
		r.Broken, r.Reason = true, p.Reason
	default:
		return r, false
	}
	return r, true
}

// unsent tells of a connection that could not be made: certainly nothing has
// happened. Otherwise something may have.
func unsent(err error) error {
	var op *net.OpError
	var dns *net.DNSError
	if errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns) {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}
