package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server/internal/check"
)

// decode reads the JSON body of a request. It is read to its end, which also is
// what makes net/http notice a client that vanishes while the answer is held
// back. An empty body is an empty object.
func decode[T any](r *http.Request) (body T, err error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return body, bodyError(err)
	}
	if !utf8.Valid(text) {
		return body, newProblem(Invalid, "the body is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	switch err := d.Decode(&body); {
	case errors.Is(err, io.EOF): // nothing but space
		return body, nil
	case err != nil:
		return body, newProblem(Invalid, "the body is not the JSON that is wanted: %s", inWords(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return body, newProblem(Invalid, "the body has more after its JSON")
	}
	return body, nil
}

// inWords is an error of encoding/json in terms of the interface.
func inWords(err error) string {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind) && kind.Field == "":
		return "it is not an object"
	case errors.As(err, &kind):
		return fmt.Sprintf("%s is not %s", kind.Field, wanted(kind.Type))
	case errors.As(err, &syntax):
		return fmt.Sprintf("%v, at byte %d", err, syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it ends too early"
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return "there is no field " + field
	}
	return "since is not a time such as 2026-01-02T03:04:05Z" // the only field that reads itself
}

// wanted says what a field takes.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Slice:
		return "an array"
	}
	return "a whole number"
}

// bodyError says why a body could not be read.
func bodyError(err error) error {
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return newProblem(TooLarge, "the body is larger than %d bytes", large.Limit)
	}
	return newProblem(Invalid, "the body could not be read: %v", err)
}

// lockName is the lock's in the path.
func lockName(x *Exchange) (string, error) {
	return x.Name, check.Text("name", x.Name, 1, check.MaxName)
}

// millisOr is the value of a field, or what its absence means.
func millisOr(m *wire.Millis, absent time.Duration) wire.Millis {
	if m == nil {
		return wire.MillisOf(absent)
	}
	return *m
}

// lifetime is the TTL of a request.
func (s *Server) lifetime(m *wire.Millis) (time.Duration, error) {
	ttl := millisOr(m, min(check.DefaultTTL, s.cfg.maxTTL))
	return ttl.Duration(), check.Millis("ttlMs", ttl, check.MinTTL, s.cfg.maxTTL)
}

// request is what the body of an acquire asks of the store.
func (s *Server) request(name string, b *wire.Acquire) (driver.Request, error) {
	ttl, err := s.lifetime(b.TTL)
	if err != nil {
		return driver.Request{}, err
	}
	mode, modeErr := wire.ParseMode(b.Mode)
	policy, policyErr := wire.ParsePolicy(b.Policy)
	var labels []byte
	if len(b.Labels) > 0 {
		labels, _ = json.Marshal(b.Labels)
	}
	err = check.First(modeErr, policyErr,
		check.Text("owner", b.Owner, 0, check.MaxOwner),
		check.Int("size of the labels", int64(len(labels)), 0, check.MaxLabels),
		check.Int("limit", int64(b.Limit), 0, 1<<31-1),
		check.Int("permits", int64(b.Permits), 0, 1<<31-1),
		check.Int("minToken", int64(b.MinToken), 0, 1<<53-1),
		check.Millis("waitMs", b.Wait, 0, s.cfg.maxWait),
		check.Millis("ticketMs", millisOr(b.Ticket, 0), 0, maxTicket),
		check.Millis("lockDelayMs", b.LockDelay, 0, s.cfg.maxTTL),
		check.Millis("confirmMs", b.Confirm, 0, maxTicket),
		check.Text("notify", b.Notify, 0, check.MaxName),
		check.Visit(b.Visit),
	)
	if err == nil && b.Notify != "" && b.Wait > 0 {
		err = newProblem(Invalid, "waitMs holds the answer back, so that there is nothing to notify of")
	}
	if err == nil {
		b.Notify, err = s.checkAddress(b.Notify)
	}
	if err == nil && mode == driver.Exclusive && (b.Limit > 0 || b.Permits > 1) {
		err = newProblem(Invalid, "limit and permits are for mode shared")
	}
	if err == nil && b.Downgrade && (mode == driver.Exclusive || b.Wait > 0) {
		err = newProblem(Invalid, "downgrade is for mode shared, without waitMs")
	}
	if err == nil && b.Reentrant && b.Owner == "" {
		err = newProblem(Invalid, "reentrant needs an owner, whose name identifies it")
	}
	return driver.Request{
		Key: name, ID: b.LeaseID, Owner: b.Owner, Reenter: b.Reentrant, Labels: b.Labels, Since: b.Since,
		Mode: mode, Policy: policy, Ordered: b.Ordered, Limit: int(b.Limit), Resize: b.Resize, Downgrade: b.Downgrade, Weight: int(b.Permits), TTL: ttl,
		LockDelay: b.LockDelay.Duration(), MinToken: int64(b.MinToken), HintAddress: b.Notify, Visit: b.Visit, SingleUseID: true,
		ConfirmWindow: cmp.Or(b.Confirm.Duration(), timing.Window(ttl)),
	}, err
}

// defaultTicket is how long the place in the queue is kept, unless something
// else is asked for, after a wait has ended: long enough to ask again.
const defaultTicket = 3 * time.Second

// maxTicket bounds how long a place in the queue is kept for a client that does
// not ask, and so what a dead one costs those behind it.
const maxTicket = time.Minute

// duration reads a parameter of the query in milliseconds.
func duration(u *url.URL, what string, absent, most time.Duration) (time.Duration, error) {
	text := u.Query().Get(what)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		return 0, newProblem(Invalid, "%s %q is not a whole number of milliseconds", what, oneline.Shorten(text))
	}
	m := wire.Millis(n)
	return m.Duration(), check.Millis(what, m, 0, most)
}
