// Package check refuses values out of bounds before a store is called: keys, lease ids, owners,
// labels, other texts, and numbers. The library, the stores, the service and the command use
// it, so a value has the same bounds and the same error everywhere.
package check

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/driver"
)

// Bounds of the values in requests; sizes are in bytes.
const (
	MaxKey    = 512
	MaxID     = 64
	MaxOwner  = 256
	MaxReason = 256
	MaxVisit  = 128
	MinTTL    = 10 * time.Millisecond
	MaxTTL    = 24 * time.Hour
)

// Error describes a wrong value. It matches [driver.ErrInvalid].
type Error string

func (e Error) Error() string { return string(e) + ": " + driver.ErrInvalid.Error() }

// Unwrap returns [driver.ErrInvalid].
func (e Error) Unwrap() error { return driver.ErrInvalid }

// Errorf returns an Error.
func Errorf(format string, args ...any) error { return Error(fmt.Sprintf(format, args...)) }

// Invalid returns an error that matches [driver.ErrInvalid], and ends with its text once.
func Invalid(err error) error {
	if errors.Is(err, driver.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", err, driver.ErrInvalid)
}

// Key refuses an invalid key of a lock.
func Key(key string) error { return Text("key", key, 1, MaxKey) }

// ID refuses an invalid lease id.
func ID(id string) error {
	if id == "" || len(id) > MaxID || strings.IndexByte("_.-", id[0]) >= 0 || !consistsOf(id, "_.-") {
		return Errorf("lease id %.80q is not 1 to %d of [A-Za-z0-9_.-], the first a letter or digit", id, MaxID)
	}
	return nil
}

// Visit refuses an invalid name of a visit, or one longer than most bytes.
func Visit(name string, most int) error {
	if len(name) > most || !consistsOf(name, "_.-/") {
		return Errorf("visit %.80q is not up to %d of [A-Za-z0-9_./-]", name, most)
	}
	return nil
}

// consistsOf reports whether text consists of ASCII letters, digits and the characters of marks.
func consistsOf(text, marks string) bool {
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(marks, c) < 0 {
			return false
		}
	}
	return true
}

// Text refuses text that has fewer than least or more than most bytes, is not UTF-8, or has
// control characters. least is 0 or 1.
func Text(what, text string, least, most int) error {
	switch {
	case len(text) < least:
		return Errorf("%s is empty", what)
	case len(text) > most:
		return Errorf("%s of %d bytes is longer than %d", what, len(text), most)
	case isPrintableASCII(text): // most texts are
		return nil
	case !utf8.ValidString(text):
		return Errorf("%s %.80q is not valid UTF-8", what, text)
	case strings.ContainsFunc(text, unicode.IsControl):
		return Errorf("%s %.80q has control characters", what, text)
	}
	return nil
}

func isPrintableASCII(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// Labels refuses labels of more than most bytes of JSON, or whose text a terminal or JSON would
// change. It returns the JSON, which is empty without labels.
func Labels(labels map[string]string, most int) (string, error) {
	if len(labels) == 0 {
		return "", nil
	}
	for name, value := range labels {
		pair := name + "=" + value
		if err := Text("label", pair, 0, len(pair)); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(labels)
	if err != nil || len(text) > most {
		return "", Errorf("labels are %d bytes of JSON, more than %d", len(text), most)
	}
	return string(text), nil
}

// Range refuses a value out of bounds.
func Range[T cmp.Ordered](what string, v, low, high T) error {
	if v >= low && v <= high { // NaN is neither
		return nil
	}
	return Errorf("%s %v is not between %v and %v", what, v, low, high)
}
