// Package check refuses what cannot be meant, before anything is asked of a store.
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

// Bounds of what requests name. They are those of the library.
const (
	MaxName   = 512
	MaxID     = 64
	MaxOwner  = 256
	MaxLabels = 8 << 10 // an election publishes its value as one
	MaxReason = 256
	MinTTL    = 10 * time.Millisecond
	// MaxTTL bounds for how long a store keeps anything that a client asks for.
	MaxTTL = 24 * time.Hour
	// DefaultTTL is that of leases whose request names none.
	DefaultTTL = 30 * time.Second
)

// DefaultTicket is how long the place in the queue is kept, unless something
// else is asked for, after a wait has ended: long enough to ask again.
const DefaultTicket = 3 * time.Second

// MaxTicket bounds how long a place in the queue is kept for a client that does
// not ask, and so what a dead one costs those behind it.
const MaxTicket = time.Minute

// Error is what a client is told about a value.
type Error string

func (e Error) Error() string { return string(e) }

func refuse(format string, args ...any) error { return Error(fmt.Sprintf(format, args...)) }

// ID refuses what is no lease id.
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

// Visit refuses what is no name of a visit.
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

// Text refuses text that is too short, too long, or not to be printed.
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

// printed reports whether all of text is printed ASCII.
func printed(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// Millis refuses a duration out of bounds.
func Millis(what string, m wire.Millis, low, high time.Duration) error {
	if d := m.Duration(); d < low || d > high {
		return refuse("%s %d is not between %d and %d", what, m, low.Milliseconds(), high.Milliseconds())
	}
	return nil
}

// Int refuses a number out of bounds.
func Int(what string, n, low, high int64) error {
	if n < low || n > high {
		return refuse("%s %d is not between %d and %d", what, n, low, high)
	}
	return nil
}

// First returns the first error that is one.
func First(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
