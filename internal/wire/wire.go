// Package wire defines the JSON of the HTTP service, and converts it to and from the types of
// package driver. Service and client share it, so that they cannot differ.
//
// Durations are whole milliseconds in fields that end in Ms. A field that is
// absent has the meaning of its zero value unless it is a pointer.
package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Millis is a duration in whole milliseconds.
type Millis int64

// UnmarshalJSON reads a whole number in any notation, such as 1000.0.
func (m *Millis) UnmarshalJSON(text []byte) error { return unmarshalWhole((*int64)(m), text) }

// Whole is a whole number of a request.
type Whole int64

// UnmarshalJSON reads a whole number in any notation, such as 1000.0.
func (n *Whole) UnmarshalJSON(text []byte) error { return unmarshalWhole((*int64)(n), text) }

// unmarshalWhole reads a number. JSON null leaves n as it is.
func unmarshalWhole(n *int64, text []byte) error {
	if string(text) == "null" {
		return nil
	}
	if whole, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		*n = whole
		return nil
	}
	const exact = 1 << 53 // above, not every number has a float of its own
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > exact {
		return &json.UnmarshalTypeError{Value: "number " + string(text), Type: reflect.TypeFor[int64]()}
	}
	*n = int64(f)
	return nil
}

// MillisOf returns d in milliseconds, rounded up, so that a positive duration never becomes 0.
func MillisOf(d time.Duration) Millis {
	return Millis((d + time.Millisecond - 1) / time.Millisecond)
}

// Floor returns d in milliseconds, rounded down, so that the rest of a lease is never
// overstated.
func Floor(d time.Duration) Millis { return Millis(d / time.Millisecond) }

// Duration returns m as a duration, the longest if it is out of range.
func (m Millis) Duration() time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(int64(m), -most), most)) * time.Millisecond
}

// Modes, policies and states by the names they have in JSON.
var (
	modes    = []string{driver.Exclusive: "exclusive", driver.Shared: "shared"}
	policies = []string{
		driver.FIFO: "fifo", driver.Barging: "barging",
		driver.WritersFirst: "writers-first", driver.ReadersFirst: "readers-first",
	}
	states = []string{
		driver.Gone: "gone", driver.Busy: "busy", driver.Queued: "queued", driver.Granted: "held",
		driver.Released: "released", driver.Left: "left", driver.Resized: "resized",
	}
)

// ModeName returns the name of a mode.
func ModeName(m driver.Mode) string { return modes[min(int(m), len(modes)-1)] }

// PolicyName returns the name of a policy.
func PolicyName(p driver.Policy) string { return policies[min(int(p), len(policies)-1)] }

// StateName returns the name of a state.
func StateName(s driver.State) string { return states[min(int(s), len(states)-1)] }

// ParseMode returns the mode of a name; an empty name means exclusive.
func ParseMode(name string) (driver.Mode, error) { return parse[driver.Mode]("mode", modes, name) }

// ParsePolicy returns the policy of a name; an empty name means fifo.
func ParsePolicy(name string) (driver.Policy, error) {
	return parse[driver.Policy]("policy", policies, name)
}

// ParseState returns the state of a name. An empty name is an error: every answer has a state.
func ParseState(name string) (driver.State, error) {
	if name == "" {
		return 0, fmt.Errorf("no state: %w", driver.ErrInvalid)
	}
	return parse[driver.State]("state", states, name)
}

func parse[T ~uint8](kind string, names []string, name string) (T, error) {
	for i, n := range names {
		if n == name || name == "" && i == 0 {
			return T(i), nil
		}
	}
	return 0, fmt.Errorf("%s %q is not one of %q: %w", kind, name, names, driver.ErrInvalid)
}
