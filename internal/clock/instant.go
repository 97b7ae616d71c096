package clock

import "time"

// Instant is a time in a third of the memory: nanoseconds since an [Epoch]. 0 is the zero
// time.
type Instant int64

// Epoch is the origin of instants.
type Epoch struct{ start time.Time }

// NewEpoch returns an epoch a little before now, so that no instant from now on
// is 0.
func NewEpoch(now time.Time) Epoch { return Epoch{now.Add(-time.Second)} }

// Instant returns t as an instant; the zero time becomes 0.
func (e Epoch) Instant(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.Sub(e.start))
}

// Time converts an instant back to a time. It is the inverse of [Epoch.Instant].
func (e Epoch) Time(i Instant) time.Time {
	if i == 0 {
		return time.Time{}
	}
	return e.start.Add(time.Duration(i))
}
