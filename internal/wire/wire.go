// Package wire is the JSON of the HTTP service: what requests and answers look
// like, and what they mean in terms of package driver. Service and client share
// it, so that neither can drift from the other.
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

// UnmarshalJSON reads any number that is whole, however it is written: 1000.0 is.
func (m *Millis) UnmarshalJSON(text []byte) error { return unmarshalWhole((*int64)(m), text) }

// Whole is a whole number of a request.
type Whole int64

// UnmarshalJSON reads any number that is whole, however it is written: 1000.0 is.
func (n *Whole) UnmarshalJSON(text []byte) error { return unmarshalWhole((*int64)(n), text) }

// unmarshalWhole reads a number. A JSON null changes nothing.
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

// MillisOf returns d in milliseconds, of which a part counts as a whole one:
// what is above 0 never becomes 0.
func MillisOf(d time.Duration) Millis {
	return Millis((d + time.Millisecond - 1) / time.Millisecond)
}

// Floor returns d in milliseconds, rounded down: what is left of a lease is
// never overstated.
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

// ModeName is the name of a mode.
func ModeName(m driver.Mode) string { return modes[min(int(m), len(modes)-1)] }

// PolicyName is the name of a policy.
func PolicyName(p driver.Policy) string { return policies[min(int(p), len(policies)-1)] }

// StateName is the name of a state.
func StateName(s driver.State) string { return states[min(int(s), len(states)-1)] }

// ParseMode is the mode of a name; an empty one is exclusive.
func ParseMode(name string) (driver.Mode, error) { return parse[driver.Mode]("mode", modes, name) }

// ParsePolicy is the policy of a name; an empty one is fifo.
func ParsePolicy(name string) (driver.Policy, error) {
	return parse[driver.Policy]("policy", policies, name)
}

// ParseState is the state of a name, which has to be there: an answer without one
// is not an answer.
func ParseState(name string) (driver.State, error) {
	if name == "" {
		return 0, fmt.Errorf("no state: %w", driver.ErrInvalid)
	}
	return parse[driver.State]("state", states, name)
}

func parse[T ~uint8](what string, names []string, name string) (T, error) {
	for i, n := range names {
		if n == name || name == "" && i == 0 {
			return T(i), nil
		}
	}
	return 0, fmt.Errorf("%s %q is none of %q: %w", what, name, names, driver.ErrInvalid)
}
