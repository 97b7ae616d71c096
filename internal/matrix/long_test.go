package matrix_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
)

// How long leases may last, and for how long a store that has lost something is forgiven:
// as long as the longest lease, and some more.
const (
	longest  = 10 * time.Minute
	forgiven = longest + 2*time.Minute
)

// TestLong_DaysOfLossesAndRestarts has two clients use one lock for virtual days: often,
// and then not for hours, so that counters and scripts are forgotten in between, with
// leases of a second to ten minutes. Meanwhile messages are lost, late, doubled and held
// up, for minutes too; a single store forgets, comes back old and fails over; and of a
// quorum one node after the other forgets, is in quarantine and gets a mark again. Nobody
// holds beside somebody (on a quorum never, elsewhere unless the store has just lost what
// it had acknowledged), tokens rise all the time, whoever loses a lease is told by its
// deadline, and in the end nothing is left.
func TestLong_DaysOfLossesAndRestarts(t *testing.T) {
	for _, w := range []struct {
		name  string
		open  func(*testing.T) *world
		hours int
	}{{"store", onStore, 240}, {"redis", onRedis, 48}, {"quorum", onQuorum, 48}, {"redis quorum", onRedisQuorum, 8}} {
		t.Run(w.name, func(t *testing.T) {
			length := time.Duration(w.hours) * time.Hour
			if testing.Short() {
				length /= 8
			}
			if slower > 0 {
				length /= 4
			}
			t.Logf("-matrix.seed=%d", *seed)
			synctest.Test(t, func(t *testing.T) { live(t, w.open(t), length) })
		})
	}
}

// client is one of two.
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
	var both [2]*client
	for i, p := range []**leasehold.Client{&c.a, &c.b} {
		var err error
		if *p, err = leasehold.New(w.drivers[i], leasehold.WithName([]string{"A", "B"}[i])); err != nil {
			t.Fatal(err)
		}
		both[i] = &client{cast: c, c: *p, rng: rand.New(rand.NewPCG(*seed, uint64(i))), end: end} //nolint:gosec // to be repeated
	}
	for _, p := range both {
		c.wg.Go(p.work)
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
	t.Logf("%v: %d grants, %d leases lost, %d faults", length, got, both[0].lost+both[1].lost, faults)
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
			p.hold(l, between(p.rng, 0, 4*lasts))
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, leasehold.ErrUnavailable), errors.Is(err, leasehold.ErrUnknown):
		default:
			p.wrong("%v", err)
		}
		cancel()
	}
}

func (p *client) hold(l *leasehold.Lease, d time.Duration) {
	p.enters(l, false)
	select {
	case <-l.Context().Done():
	case <-time.After(d):
	}
	if len(p.tables) == 1 {
		p.truth("held") // a lease may have had no more than a majority, of which one node has forgotten it
	}
	live := l.Context().Err() == nil
	p.leaves(l)
	switch err := l.Release(); {
	case !live:
		p.lost++
	case err != nil && !errors.Is(err, leasehold.ErrUnknown) && !p.lying() && len(p.tables) == 1:
		p.wrong("the release of a live lease: %v", err)
	}
}

// suffer has something go wrong every hour, and returns how often it did.
func (c *cast) suffer(end time.Time) (n int) {
	rng := rand.New(rand.NewPCG(*seed, 2)) //nolint:gosec // to be repeated
	for {
		time.Sleep(between(rng, 20*time.Minute, 90*time.Minute))
		if time.Now().After(end) {
			return n
		}
		n++
		f := []fate{lost, unanswered, slow, stuck, late, doubled, frozen, starved, refused, forgets, goesBack, failsOver}[rng.IntN(12)]
		if !loses(f) {
			c.arm(f, 0, []time.Duration{0, 10 * time.Second, 5 * time.Minute}[rng.IntN(3)])
			continue
		}
		i := rng.IntN(len(c.tables))
		age := []time.Duration{time.Second, time.Minute, 2 * time.Hour}[rng.IntN(3)]
		c.tables[i].keep()
		time.Sleep(age)
		c.mu.Lock()
		c.forget = len(c.tables) == 1
		c.mu.Unlock()
		switch {
		case f == forgets:
			c.tables[i].forget()
		case len(c.tables) > 1 && age > time.Second:
			c.tables[i].forget() // no guard tells that a node has come back old
		case len(c.tables) == 1:
			c.tables[i].goBack()
		}
		time.Sleep(forgiven)
		c.mu.Lock()
		c.forget = false
		c.live = slices.DeleteFunc(c.live, func(b *belief) bool { return b.Context().Err() != nil })
		c.mu.Unlock()
	}
}

// ends judges that all keys end, but the mark of a quorum.
func (k *keyspace) ends(t *testing.T) {
	k.mu.Lock()
	defer k.mu.Unlock()
	lasting := 0
	for name, v := range k.keys {
		if v.At == 0 {
			lasting++
		}
		if day := time.Now().Add(25 * time.Hour).UnixMilli(); v.At > day {
			t.Errorf("the key %q ends %d ms after a day", name, v.At-day)
		}
	}
	if lasting > 1 {
		t.Errorf("%d keys never end", lasting)
	}
}
