package leasehold

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold/internal/check"
)

// Backoff is a strategy for asking again without a queue. It is a value, and
// its delays are a pure function of the attempt's number: one Backoff may be
// shared by any number of locks and goroutines, and every wait starts with attempt 1.
type Backoff struct {
	// Base is the delay after the first attempt. 1 ms to 1 h.
	Base time.Duration
	// Step is added per attempt. Default 0.
	Step time.Duration
	// Factor multiplies the delay per attempt. 0 counts as 1; at most 10.
	Factor float64
	// Cap bounds the delay; 0 is one hour.
	Cap time.Duration
	// Jitter spreads each delay evenly over this part of it, upwards and
	// downwards, so that contenders do not ask in step. From 0 to 1.
	Jitter float64
	// Attempts bounds how often the store is asked; 0 is without bound. A request that
	// the store does not answer is repeated (see [WithMaxOutage]) and counts as one
	// attempt.
	Attempts int
}

// Constant asks every d, spread by a tenth.
func Constant(d time.Duration) Backoff { return Backoff{Base: d, Jitter: 0.1} }

// Linear asks after d, 2d, 3d, … up to limit, spread by a tenth.
func Linear(d, limit time.Duration) Backoff {
	return Backoff{Base: d, Step: d, Cap: limit, Jitter: 0.1}
}

// Exponential asks after d, 2d, 4d, … up to limit, spread by half.
func Exponential(d, limit time.Duration) Backoff {
	return Backoff{Base: d, Factor: 2, Cap: limit, Jitter: 0.5}
}

// Alongside asks after 50 to 250 ms, evenly spread: as redsync does by default, and so with
// the same chances. It is for locks that workers with another library take under the same
// plain key. Such workers have no place in the queue: with a queue on one side, one of
// the two sides might never get the lock. See docs/migrating.md.
func Alongside() Backoff { return Backoff{Base: 150 * time.Millisecond, Jitter: 2. / 3} }

// Delay returns the delay after the given attempt, counted from 1, before
// jitter.
func (b Backoff) Delay(attempt int) time.Duration {
	n := float64(max(attempt, 1) - 1)
	d := (float64(b.Base) + n*float64(b.Step)) * math.Pow(max(b.Factor, 1), n)
	limit := b.Cap
	if limit == 0 {
		limit = time.Hour
	}
	if d >= float64(limit) { // also where d overflowed to infinity
		return limit
	}
	return time.Duration(d)
}

// spread returns the delay with jitter, at least 1 ms.
func (b Backoff) spread(attempt int) time.Duration {
	d := float64(b.Delay(attempt))
	d *= 1 + b.Jitter*(2*rand.Float64()-1)
	return max(time.Duration(d), time.Millisecond)
}

func (b Backoff) check() error {
	return cmp.Or(
		check.Range("retry delay", b.Base, time.Millisecond, time.Hour),
		check.Range("retry step", b.Step, 0, time.Hour),
		check.Range("retry factor", b.Factor, 0, 10),
		check.Range("retry cap", b.Cap, 0, time.Hour),
		check.Range("retry jitter", b.Jitter, 0, 1),
		check.Range("number of retry attempts", b.Attempts, 0, math.MaxInt),
	)
}
