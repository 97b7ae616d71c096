package overview

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Sample is one interval of the charts. Counts are of the whole interval.
type Sample struct {
	At           time.Time `json:"at"`
	Acquisitions int64     `json:"acquisitions"`
	Renewals     int64     `json:"renewals"`
	HandOvers    int64     `json:"handOvers"`
	Lost         int64     `json:"lost"`
	Broken       int64     `json:"broken"`
	// WaitP50 and WaitP99 are of the waits that ended with a grant.
	WaitP50 int64 `json:"waitP50Us"`
	WaitP99 int64 `json:"waitP99Us"`
	// RoundTrip is half of the looks' at the store or less, 0 if there was none.
	RoundTrip int64 `json:"roundTripUs"`
	Looks     int64 `json:"looks"`
	Failures  int64 `json:"failures"`
}

// samples is how many are kept: an hour.
const samples = int(time.Hour / sampleEvery)

// ring is the last hour.
type ring struct {
	done  []Sample // the oldest first
	now   Sample
	waits reservoir
	trips reservoir
}

func newRing(now time.Time) ring { return ring{now: Sample{At: now.Truncate(sampleEvery)}} }

// roll ends intervals that are over.
func (r *ring) roll(now time.Time) {
	at := now.Truncate(sampleEvery)
	if !at.After(r.now.At) {
		return
	}
	gap := int(at.Sub(r.now.At)/sampleEvery) - 1
	r.push(r.current())
	if gap >= samples { // it was stopped for so long
		gap, r.done = 0, nil
	}
	for i := range gap {
		r.push(Sample{At: r.now.At.Add(time.Duration(i+1) * sampleEvery)})
	}
	r.now, r.waits.n, r.trips.n = Sample{At: at}, 0, 0
}

func (r *ring) push(s Sample) {
	if len(r.done) == samples {
		r.done = append(r.done[:0], r.done[1:]...)
	}
	r.done = append(r.done, s)
}

// current is the interval that is not over yet.
func (r *ring) current() Sample {
	s := r.now
	w, t := r.waits.sorted(), r.trips.sorted()
	s.WaitP50, s.WaitP99 = quantile(w, 50).Microseconds(), quantile(w, 99).Microseconds()
	s.RoundTrip = quantile(t, 50).Microseconds()
	return s
}

// granted counts a grant, unless a look has counted it.
func (r *ring) granted(waited time.Duration, count bool, now time.Time) {
	r.roll(now)
	if count {
		r.now.Acquisitions++
	}
	r.waits.add(waited)
}

func (r *ring) grantedUntimed(now time.Time) {
	r.roll(now)
	r.now.Acquisitions++
}

func (r *ring) renewed(now time.Time) {
	r.roll(now)
	r.now.Renewals++
}

func (r *ring) handedOver(now time.Time) {
	r.roll(now)
	r.now.HandOvers++
}

func (r *ring) lost(kind string, now time.Time) {
	r.roll(now)
	if kind == broken {
		r.now.Broken++
	} else {
		r.now.Lost++
	}
}

func (r *ring) looked(took time.Duration, err error, now time.Time) {
	r.roll(now)
	r.now.Looks++
	if err != nil {
		r.now.Failures++
		return
	}
	r.trips.add(took)
}

// reservoir keeps a fair choice of the durations of an interval.
type reservoir struct {
	kept [256]time.Duration
	n    int
}

func (r *reservoir) add(d time.Duration) {
	at := r.n
	if r.n++; at >= len(r.kept) {
		if at = rand.IntN(r.n); at >= len(r.kept) {
			return
		}
	}
	r.kept[at] = d
}

func (r *reservoir) sorted() []time.Duration {
	return slices.Sorted(slices.Values(r.kept[:min(r.n, len(r.kept))]))
}

// health is what a store says of itself.
type health struct {
	mu     sync.Mutex
	report driver.Report
	err    error
	at     time.Time
}

func (h *health) set(report driver.Report, err error, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report, h.err, h.at = report, err, now
}

func (h *health) get() (driver.Report, time.Time, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.report, h.at, h.err
}
