package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// The longest leases, and the time for which losses are excused after a store has lost data: as
// long as the longest lease, and some more.
const (
	longest  = 10 * time.Minute
	forgiven = longest + 2*time.Minute
)

// TestLong_DaysOfLossesAndRestarts lets two clients use one lock for virtual days: often, and
// then not for hours, so that counters and scripts expire in between, with leases of a second to
// ten minutes.
//
// Messages are lost, late, doubled and delayed, also by minutes. A single store forgets, comes
// back with old data and fails over. Of a quorum, one node after the other forgets, is in
// quarantine and gets a mark again. The clock of a store or a node is stepped forward and back by
// a second to a day, and runs fast and slow within the drift and beyond.
//
// Two clients never hold the lock at once, unless a single store has just lost acknowledged data,
// or its clock was stepped forward or too fast. Tokens always rise. A client that loses a lease
// notices by the deadline. In the end no record is left. A clock costs a lease only if it is
// stepped forward by more than three fifths of the lease, or is too fast.
func TestLong_DaysOfLossesAndRestarts(t *testing.T) {
	for _, w := range []struct {
		name  string
		open  func(*testing.T) *world
		hours int
	}{{"store", onStore, 240}, {"redis", onRedis, 48}, {"quorum", onQuorum, 48}, {"redis quorum", onRedisQuorum, 8}} {
		t.Run(w.name, func(t *testing.T) {
			length := time.Duration(w.hours) * time.Hour
			if testing.Short() {
				length /= 16
			}
			if length < time.Hour {
				skip.Nightly(t, "no fault comes in so short a time")
			}
			if skip.Race {
				length /= 4
			}
			t.Logf("-matrix.seed=%d", *seed)
			synctest.Test(t, func(t *testing.T) { live(t, w.open(t), length) })
		})
	}
}

// client is one of the two clients.
type client struct {
	*cast
	c         *leasehold.Client
	rng       *rand.Rand
	end       time.Time
	got, lost int
}

func live(t *testing.T, w *world, length time.Duration) {
	begin := time.Now()
	end := begin.Add(length)
	c := &cast{world: w}
	if err := c.connect(); err != nil {
		t.Fatal(err)
	}
	var both [2]*client
	for i, p := range []*leasehold.Client{c.a, c.b} {
		both[i] = &client{cast: c, c: p, rng: rand.New(rand.NewPCG(*seed, uint64(i))), end: end} //nolint:gosec // to be repeated
		c.wg.Go(both[i].work)
	}
	faults := 0
	c.wg.Go(func() { faults = c.suffer(end) })
	c.wg.Wait()
	c.heal()
	for _, p := range both {
		if err := p.c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	w.strays.Wait()
	for _, s := range w.tables {
		clock := s.(clocked)
		clock.turn(clock.behind(), 0) // records last longer by that time
	}
	time.Sleep(2 * longest)
	for _, s := range w.tables {
		snap, err := s.join().Inspect(context.Background(), key)
		if err != nil || len(snap.Holders)+len(snap.Waiters) > 0 {
			t.Errorf("left behind: %+v (%v)", snap, err)
		}
		if k, ok := s.(*keyspace); ok {
			k.ends(t)
		}
	}
	w.stop()
	got := both[0].got + both[1].got
	t.Logf("%v: %d grants, %d leases lost, %d faults, %d of them of a clock", length, got, both[0].lost+both[1].lost, faults, c.turns)
	if hours := int(length / time.Hour); got < hours/2 {
		t.Errorf("%d grants in %d hours", got, hours)
	}
	for _, wrong := range c.wrongs {
		t.Error(wrong)
	}
}

// between is a random time from least to most.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)))
}

// work takes the lock again and again.
func (p *client) work() {
	for time.Now().Before(p.end) {
		pause := between(p.rng, 0, 10*time.Minute)
		if p.rng.IntN(20) == 0 {
			pause = between(p.rng, time.Hour, 3*time.Hour) // counters end
		}
		time.Sleep(pause)
		lasts := []time.Duration{time.Second, 10 * time.Second, time.Minute, longest}[p.rng.IntN(4)]
		ctx, cancel := context.WithTimeout(context.Background(), between(p.rng, time.Second, time.Hour))
		m := p.c.Mutex(key, leasehold.WithTTL(lasts))
		l, err := m.Lock(ctx)
		switch {
		case err == nil:
			p.got++
			p.hold(l, lasts, between(p.rng, 0, 4*lasts))
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, leasehold.ErrUnavailable), errors.Is(err, leasehold.ErrUnknown):
		default:
			p.wrong("%v", err)
		}
		cancel()
	}
}

func (p *client) hold(l *leasehold.Lease, lasts, d time.Duration) {
	begin := time.Now()
	p.enters(l, false)
	select {
	case <-l.Context().Done():
	case <-time.After(d):
	}
	if len(p.tables) == 1 {
		p.truth("held") // a lease may have had no more than a majority, of which one node has forgotten it
	}
	live := l.Context().Err() == nil
	if errors.Is(context.Cause(l.Context()), leasehold.ErrLost) {
		p.deserved(l, begin, lasts)
	}
	p.leaves(l)
	switch err := l.Release(); {
	case !live:
		p.lost++
	case err != nil && !errors.Is(err, leasehold.ErrUnknown) && !errors.Is(err, leasehold.ErrUnavailable) && !p.lying() && len(p.tables) == 1:
		p.wrong("the release of a live lease: %v", err)
	}
}

// deserved checks a loss after a change of a clock: unless the lease was new then, its next
// renewal makes up for a step by up to three fifths of the lease.
func (p *client) deserved(l *leasehold.Lease, begin time.Time, lasts time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.calm.IsZero() && p.calm.Sub(begin).Abs() > 10*time.Second && p.leap <= lasts*3/5 {
		p.wrongs = append(p.wrongs, fmt.Sprintf("a lease of %v was lost by a clock that was stepped forward by %v: %v", lasts, p.leap, context.Cause(l.Context())))
	}
}

// clocked is a shelf with a clock.
type clocked interface {
	now() time.Time
	turn(by time.Duration, rate float64)
	behind() time.Duration
}

// turned changes a clock, and waits until both clients have noticed the effect.
func (c *cast) turned(rng *rand.Rand) {
	c.arm(arrives, 0, 0)
	time.Sleep(forgiven) // earlier disturbances are over
	c.turns++
	clock := c.tables[rng.IntN(len(c.tables))].(clocked)
	steps := []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}
	if len(c.tables) > 1 {
		steps = steps[:3] // a node may be lost again when all clocks have passed the greatest time that it has shown
	}
	step := steps[rng.IntN(len(steps))]
	rate, lasts := 0.0, time.Duration(0)
	switch rng.IntN(6) {
	case 0, 1:
	case 2, 3:
		step = -step
	case 4:
		step, rate, lasts = 0, []float64{-0.5, -0.08, -0.008, 0.008}[rng.IntN(4)], time.Hour
	case 5:
		step, rate, lasts = 0, []float64{0.08, 0.5}[rng.IntN(2)], 10*time.Minute
	}
	c.mu.Lock()
	c.forget = step > 0 || rate > timing.Drift
	c.calm, c.leap = time.Now(), max(step, 0)
	if rate > timing.Drift {
		c.calm = time.Time{}
	}
	c.mu.Unlock()
	clock.turn(step, rate)
	time.Sleep(lasts)
	clock.turn(0, 0)
	c.recover()
}

// recover waits until the clients have noticed all losses.
func (c *cast) recover() {
	time.Sleep(forgiven)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget, c.calm, c.leap = false, time.Time{}, 0
	c.live = slices.DeleteFunc(c.live, func(b *belief) bool { return b.Context().Err() != nil })
}

// ahead reports whether tokens may be ahead of a clock: then tokens are lost if the counters are.
func (c *cast) ahead() bool {
	var latest time.Duration
	for _, t := range c.tables {
		clock := t.(clocked)
		latest = max(latest, time.Until(clock.now())+clock.behind())
	}
	return slices.ContainsFunc(c.tables, func(t shelf) bool { return time.Until(t.(clocked).now()) < latest })
}

// suffer begins a fault every hour, and returns how often it did.
func (c *cast) suffer(end time.Time) (n int) {
	rng := rand.New(rand.NewPCG(*seed, 2)) //nolint:gosec // to be repeated
	for {
		time.Sleep(between(rng, 20*time.Minute, 90*time.Minute))
		if time.Now().After(end) {
			return n
		}
		n++
		if rng.IntN(3) == 0 {
			c.turned(rng)
			continue
		}
		f := []fate{lost, unanswered, slow, stuck, late, doubled, frozen, starved, refused, forgets, goesBack, failsOver}[rng.IntN(12)]
		if loses(f) && c.ahead() {
			f = []fate{lost, late, starved}[rng.IntN(3)]
		}
		if !loses(f) {
			c.arm(f, 0, []time.Duration{0, 10 * time.Second, 5 * time.Minute}[rng.IntN(3)])
			continue
		}
		i := rng.IntN(len(c.tables))
		age := []time.Duration{time.Second, time.Minute, 2 * time.Hour}[rng.IntN(3)]
		c.tables[i].Keep()
		time.Sleep(age)
		c.mu.Lock()
		c.forget = len(c.tables) == 1
		c.mu.Unlock()
		switch {
		case f == forgets:
			c.tables[i].Forget()
		case len(c.tables) > 1 && age > time.Second:
			c.tables[i].Forget() // no guard detects that a node has come back with old data
		case len(c.tables) == 1:
			c.tables[i].GoBack()
		}
		c.recover()
	}
}

// ends checks that all keys expire, except for the mark of a quorum.
func (k *keyspace) ends(t *testing.T) {
	lasting := 0
	for name, v := range k.Keys() {
		if v.At == 0 {
			lasting++
		}
		if day := k.now().Add(25 * time.Hour).UnixMilli(); v.At > day {
			t.Errorf("the key %q ends %d ms after a day", name, v.At-day)
		}
	}
	if lasting > 1 {
		t.Errorf("%d keys never end", lasting)
	}
}
