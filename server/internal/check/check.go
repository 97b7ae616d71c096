// Package check rejects invalid values of requests before a store is called.
package check

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Bounds of the values in requests. They are the bounds of the library.
const (
	MaxName   = 512
	MaxID     = 64
	MaxOwner  = 256
	MaxLabels = 8 << 10 // an election publishes its value as a label
	MaxReason = 256
	MinTTL    = 10 * time.Millisecond
	// MaxTTL bounds how long a store keeps any data of a request.
	MaxTTL = 24 * time.Hour
	// DefaultTTL is the time to live if a request has no ttl.
	DefaultTTL = 30 * time.Second
)

// DefaultTicket is the default for how long the place in the queue is kept after a wait has
// ended: long enough to ask again.
const DefaultTicket = 3 * time.Second

// MaxTicket bounds how long the place of a client that does not ask is kept in the queue, and
// so how long a dead client delays the waiters behind it.
const MaxTicket = time.Minute

// Error is a text for the client about a wrong value.
type Error string

func (e Error) Error() string { return string(e) }

func refuse(format string, args ...any) error { return Error(fmt.Sprintf(format, args...)) }

// ID rejects an invalid lease id.
func ID(id string) error {
	valid := len(id) > 0 && len(id) <= MaxID && !strings.ContainsRune("_.-", rune(id[0]))
	for _, c := range []byte(id) {
		valid = valid && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_.-", c) >= 0)
	}
	if !valid {
		return refuse("leaseId %q is not 1 to %d of A-Z, a-z, 0-9, _, . and -, the first a letter or digit", oneline.Shorten(id), MaxID)
	}
	return nil
}

// MaxVisit bounds the name of a client's visit: the service appends to it.
const MaxVisit = 96

// Visit rejects an invalid name of a visit.
func Visit(name string) error {
	valid := len(name) <= MaxVisit
	for i := 0; valid && i < len(name); i++ {
		c := name[i]
		valid = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_.-/", c) >= 0
	}
	if !valid {
		return refuse("visit %q is not up to %d of A-Z, a-z, 0-9, _, ., - and /", oneline.Shorten(name), MaxVisit)
	}
	return nil
}

// Text rejects text that is too short or too long, or has control characters.
func Text(what, text string, least, most int) error {
	switch {
	case len(text) < least || len(text) > most:
		return refuse("%s has %d bytes, not %d to %d", what, len(text), least, most)
	case printed(text):
		return nil
	case !utf8.ValidString(text):
		return refuse("%s is not valid UTF-8", what)
	case strings.ContainsFunc(text, unicode.IsControl):
		return refuse("%s %q has control characters", what, oneline.Shorten(text))
	}
	return nil
}

// printed reports whether all of text is printable ASCII.
func printed(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// Millis rejects a duration out of bounds.
func Millis(what string, m wire.Millis, low, high time.Duration) error {
	if d := m.Duration(); d < low || d > high {
		return refuse("%s %d is not between %d and %d", what, m, low.Milliseconds(), high.Milliseconds())
	}
	return nil
}

// Int rejects a number out of bounds.
func Int(what string, n, low, high int64) error {
	if n < low || n > high {
		return refuse("%s %d is not between %d and %d", what, n, low, high)
	}
	return nil
}

// First returns the first error that is not nil.
func First(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
