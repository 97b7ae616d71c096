package locktest_test

import (
	"context"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

// refusal is a call that must be refused, with an error of a type, whether the lock is free or
// held.
type refusal struct {
	name string
	want error
	ask  func(ctx context.Context, c *leasehold.Client, key string) error
}

// tooMany is a number of places that is negative if an int has 32 bits.
var tooMany int64 = math.MaxInt32 + 1

var refusals = []refusal{
	{"weight 0", leasehold.ErrInvalid, refusedPlaces(0, 3)},
	{"weight -1", leasehold.ErrInvalid, refusedPlaces(-1, 3)},
	{"weight above the limit", leasehold.ErrInvalid, refusedPlaces(4, 3)},
	{"limit 0", leasehold.ErrInvalid, refusedPlaces(1, 0)},
	{"limit -1", leasehold.ErrInvalid, refusedPlaces(1, -1)},
	{"limit 2^31", leasehold.ErrInvalid, refusedPlaces(1, int(tooMany))},
	{"resize to 0", leasehold.ErrInvalid, func(ctx context.Context, c *leasehold.Client, key string) error {
		return c.Semaphore(key, 3).Resize(ctx, 0)
	}},
	{"resize to -1", leasehold.ErrInvalid, func(ctx context.Context, c *leasehold.Client, key string) error {
		return c.Semaphore(key, 3).Resize(ctx, -1)
	}},
	{"no locks", leasehold.ErrInvalid, func(ctx context.Context, _ *leasehold.Client, _ string) error {
		_, err := leasehold.All().Lock(ctx)
		return err
	}},
	{"one key with two limits", leasehold.ErrMismatch, func(ctx context.Context, c *leasehold.Client, key string) error {
		_, err := leasehold.All(c.Semaphore(key, 3), c.Semaphore(key, 4)).Lock(ctx)
		return err
	}},
	{"one key with a limit and none", leasehold.ErrMismatch, func(ctx context.Context, c *leasehold.Client, key string) error {
		_, err := leasehold.All(c.Semaphore(key, 3), c.RWMutex(key).RLocker()).TryLock(ctx)
		return err
	}},
	{"a value of 4 KiB and a byte", leasehold.ErrInvalid, func(ctx context.Context, c *leasehold.Client, key string) error {
		e := c.Election(key, strings.Repeat("x", leasehold.MaxValue+1))
		if _, err := e.Leader(ctx); err == nil {
			return nil
		}
		e.Resign()
		return e.Lead(ctx, func(context.Context, *leasehold.Lease) error { return nil })
	}},
}

func refusedPlaces(n, limit int) func(context.Context, *leasehold.Client, string) error {
	return func(ctx context.Context, c *leasehold.Client, key string) error {
		side := places(n, limit)(c, key)
		if lease, err := side.try(ctx); err == nil {
			return lease.Release()
		}
		_, err := side.lock(ctx)
		return err
	}
}

// refusalRows try every refusal on a free lock and on a held one: the records in the store must
// not change.
var refusalRows = []row{
	{"Refusals_OfAFreeLockChangeNothing", func(l *lab) {
		c, _ := l.client(leasehold.WithMaxWait(life))
		for _, r := range refusals {
			l.wantErr(r.ask(context.Background(), c, l.key), r.want)
			for key, err := range c.Keys(context.Background(), l.key) {
				l.Errorf("%s: %q is in use, %v", r.name, key, err)
			}
		}
		l.wantFree(0)
	}},
	{"Refusals_OfALockInUseChangeNothing", func(l *lab) {
		a, _ := l.client()
		b, _ := l.client(leasehold.WithMaxWait(life))
		in := l.enter(places(3, 3), a)
		got := l.queue(context.Background(), places(2, 3), a, "waiter")
		before := l.picture(b)
		for _, r := range refusals {
			l.wantErr(r.ask(context.Background(), b, l.key), r.want)
			l.same(b, before, r.name)
		}
		l.wantErr(in.Downgrade(context.Background()), leasehold.ErrMismatch) // a place is shared already
		l.same(b, before, "a downgrade")
		l.release(in)
		l.release(l.entered(got, slack))
	}},
	{"Refusals_OfDowngrades", func(l *lab) {
		c, _ := l.client()
		ctx := context.Background()
		read := l.enter(reader, c)
		before := l.picture(c)
		l.wantErr(read.Downgrade(ctx), leasehold.ErrMismatch)
		l.same(c, before, "downgrade of a reader")
		l.release(read)
		l.wantErr(read.Downgrade(ctx), leasehold.ErrNotHeld)

		outer := l.enter(writer, c)
		inner, err := writer(c, l.key).lock(outer.Context())
		l.must(err)
		before = l.picture(c)
		l.wantErr(inner.Downgrade(ctx), leasehold.ErrMismatch)
		l.same(c, before, "downgrade of a lease that is held twice")
		l.release(inner, outer)

		l.wantFree(0)
	}},
	{"Refusals_EndNothing/longest value", func(l *lab) {
		c, _ := l.client()
		value := strings.Repeat("x", leasehold.MaxValue)
		e := c.Election(l.key, value)
		l.must(e.Lead(context.Background(), func(ctx context.Context, _ *leasehold.Lease) error {
			leader, err := e.Leader(ctx)
			if leader.Value != value {
				l.Errorf("a value of %d bytes was published as one of %d", len(value), len(leader.Value))
			}
			return err
		}))
		l.wantFree(0)
	}},
}

// same checks that the lock is as in the snapshot, except for the time that passed.
func (l *lab) same(c *leasehold.Client, before driver.Snapshot, after string) {
	l.Helper()
	if now := l.picture(c); !reflect.DeepEqual(still(now), still(before)) {
		l.Errorf("%s changed\n%+v into\n%+v", after, before, now)
	}
}

// still returns a snapshot without the times that change on their own.
func still(s driver.Snapshot) driver.Snapshot {
	s.Holders, s.Waiters = slices.Clone(s.Holders), slices.Clone(s.Waiters)
	for i := range s.Holders {
		s.Holders[i].Remaining = 0
	}
	for i := range s.Waiters {
		s.Waiters[i].Remaining = 0
	}
	return s
}
