package server

import (
	"bytes"
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

	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Bounds and defaults of the values in requests, where package check has none or others.
const (
	maxLabels = 8 << 10 // an election publishes its value as a label
	maxVisit  = 96      // the service appends to the name of a client's visit
	// defaultTTL is the time to live if a request has no ttl.
	defaultTTL = 30 * time.Second
	// defaultTicket is the default for how long the place in the queue is kept after a wait has
	// ended: long enough to ask again.
	defaultTicket = 3 * time.Second
	// maxTicket bounds how long the place of a client that does not ask is kept in the queue, and
	// so how long a dead client delays the waiters behind it.
	maxTicket = time.Minute
)

// decode reads the JSON body of a request. It reads to the end, because net/http notices only
// then that a client disconnects while the answer is held back. An empty body is an empty
// object.
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
	case errors.Is(err, io.EOF): // only space
		return body, nil
	case err != nil:
		return body, newProblem(Invalid, "the JSON body is not valid: %s", inWords(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return body, newProblem(Invalid, "the body has more data after its JSON")
	}
	return body, nil
}

// inWords returns the text of an error of encoding/json in terms of the interface.
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

// wanted returns the name of a field's JSON type.
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

// bodyError returns the problem of a body that could not be read.
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

// millisOr returns the value of a field, or absent if it was not given.
func millisOr(m *wire.Millis, absent time.Duration) wire.Millis {
	if m == nil {
		return wire.MillisOf(absent)
	}
	return *m
}

// checkMillis rejects a duration out of bounds.
func checkMillis(what string, m wire.Millis, low, high time.Duration) error {
	return check.Range(what, m, wire.Floor(low), wire.Floor(high))
}

// queryMillis reads a parameter of the query in milliseconds, nil if it is absent.
func queryMillis(u *url.URL, what string) (*wire.Millis, error) {
	text := u.Query().Get(what)
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		return nil, newProblem(Invalid, "%s %q is not a whole number of milliseconds", what, oneline.Shorten(text))
	}
	m := wire.Millis(n)
	return &m, nil
}
