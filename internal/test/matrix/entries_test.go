package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

// entry is a public entry in a situation.
type entry struct {
	of        []string // the calls of the API under the fault
	situation string
	prepare   func(*cast) error
	call      func(context.Context, *cast) error

	leaves  bool     // without an error the lease has ended in the store
	reads   bool     // it changes no state
	keeps   bool     // it takes no lease, so that an error does not affect the leases that are held
	waits   bool     // the second client holds the lock
	ahead   bool     // its token is ahead of the store's clock, and only the token is left when a store forgets
	short   bool     // its wait or its lease ends without a release
	tires   bool     // its lease ends when a few renewals have failed
	mayLose bool     // its end may come without the fault
	stays   bool     // its lease is left in the store until it expires
	blind   bool     // it takes no context
	slow    bool     // it makes several requests, one after the other
	notOn   []string // settings
}

func (e *entry) name() string {
	if e.situation == "" {
		return e.of[0]
	}
	return e.of[0] + ", " + e.situation
}

// ignores reports whether an entry cannot meet a fault, because there is no context to end.
func (e *entry) ignores(f *fault) bool {
	return e.blind && strings.HasPrefix(f.name, "context ended")
}

// isRoute reports whether an entry is one of the service, which can be shut down. In the
// library a client is closed.
func (e *entry) isRoute() bool { return strings.Contains(e.of[0], " /") }

// silent reports whether an entry returns no error although it cannot give a lease back: Close
// gives up after 5 s, and logs that.
func (e *entry) silent(d disturbance) bool {
	return e.of[0] == "Client.Close" && d.lasts > 5*time.Second && d.fate != unanswered
}

// held makes the second client hold the lock for a while.
func held(shared bool, d time.Duration) func(*cast) error {
	return func(c *cast) error {
		l, err := c.b.RWMutex(key).TryLock(context.Background())
		if shared {
			if err == nil {
				err = l.Release()
			}
			if err == nil {
				l, err = c.b.RWMutex(key).TryRLock(context.Background())
			}
		}
		if err != nil {
			return err
		}
		c.enters(l, shared)
		c.wg.Go(func() {
			time.Sleep(d)
			c.leaves(l)
			if err := l.Release(); err != nil && !c.lying() {
				c.wrong("B releases: %v", err)
			}
		})
		return nil
	}
}

// taking takes a lock.
type taking = func(context.Context) (*leasehold.Lease, error)

// locking returns a call that takes a lock in a play.
type locking func(*cast) taking

func tryMutex(c *cast) taking { return c.a.Mutex(key).TryLock }

func tryPlace(c *cast) taking {
	return c.a.Semaphore(key, 2).TryLock
}

// holds takes the lock before the call of the entry.
func (lock locking) holds(shared bool) func(*cast) error {
	return func(c *cast) (err error) {
		if c.outer, err = lock(c)(context.Background()); err == nil {
			c.enters(c.outer, shared)
		}
		return err
	}
}

// left leaves a lease in the store that its holder no longer renews; only its id is kept.
func (lock locking) left(shared bool) func(*cast) error {
	return func(c *cast) error {
		if err := lock.holds(shared)(c); err != nil {
			return err
		}
		c.leaves(c.outer)
		c.last = 0 // the token comes again
		return c.outer.Detach(context.Background())
	}
}

// mine makes the first client hold the lock.
var mine = locking(tryMutex).holds(false)

// passedOn makes the first client hold the lock for a while, and then pass it on in its process.
func passedOn(c *cast) error {
	l, err := c.a.Mutex(key, leasehold.WithLocalHandover(4)).TryLock(context.Background())
	if err != nil {
		return err
	}
	c.enters(l, false)
	c.wg.Go(func() {
		time.Sleep(700 * time.Millisecond)
		c.leaves(l)
		if err := l.Release(); err != nil && !errors.Is(err, leasehold.ErrUnavailable) && !c.explains(&entry{leaves: true, mayLose: true}, c.d, err) {
			c.wrong("A releases: %v", err)
		}
	})
	return nil
}

// again takes the lock by the first client and gives it back several times.
func (c *cast) again(ctx context.Context) error {
	for range 6 {
		l, err := c.a.Mutex(key).TryLock(ctx)
		if err != nil {
			return err
		}
		c.enters(l, false)
		time.Sleep(20 * time.Millisecond)
		c.leaves(l)
		switch err := l.Release(); {
		case errors.Is(err, leasehold.ErrUnavailable):
			return fmt.Errorf("%w: %w", leasehold.ErrUnknown, err) // the release was certainly not done, but the lock was taken
		case err != nil && !errors.Is(err, leasehold.ErrLost):
			return err
		}
	}
	return nil
}

// two makes the first client hold two locks.
func two(c *cast) error {
	l, err := leasehold.All(c.a.Mutex(key), c.a.Mutex("k2")).TryLock(context.Background())
	if err == nil {
		c.multi = l
		for _, p := range l.Parts() {
			c.enters(p, false)
		}
	}
	return err
}

// working checks the context of a function that is called with a lock held.
func (c *cast) working(ctx context.Context) error {
	leases := []*leasehold.Lease{}
	if l, ok := leasehold.FromContext(ctx); ok {
		leases = append(leases, l)
	} else if m, ok := leasehold.MultiFromContext(ctx); ok {
		leases = m.Parts()
	}
	for _, l := range leases {
		c.enters(l, false)
		defer c.leaves(l)
	}
	select {
	case <-time.After(2 * ttl):
	case <-ctx.Done():
	}
	c.truth("at work")
	return nil
}

// follows checks that a context ends soon after the context of a lease.
func (c *cast) follows(ctx context.Context, l *leasehold.Lease) {
	<-l.Context().Done()
	select {
	case <-ctx.Done():
	case <-time.After(time.Millisecond):
		c.wrong("the lease of %q is over, and its leader's context is not", l.Key())
	}
}

// notOnQuorum is for entries that need places or a queue: a quorum refuses them with ErrUnsupported.
var notOnQuorum = []string{"quorum"}

func single(shared bool, of, situation string, prepare func(*cast) error, lock locking) *entry {
	return &entry{of: []string{of}, situation: situation, prepare: prepare, waits: prepare != nil, call: func(ctx context.Context, c *cast) error {
		return c.granted(shared)(lock(c)(ctx))
	}}
}

func (e *entry) isAhead() *entry {
	e.ahead = true
	return e
}

func (e *entry) isShort() *entry {
	e.short = true
	return e
}

func (e *entry) tiresSoon() *entry {
	e.tires = true
	return e
}

// isOnQuorum reports whether an entry of several holders works on a quorum: with readers, but
// without a queue.
func isOnQuorum(e *entry) bool {
	return strings.HasPrefix(e.of[0], "R") && !strings.Contains(e.situation, "First")
}

// locks are the entries that take one lock.
func locks() []*entry {
	soon := held(false, 700*time.Millisecond)
	mutex := func(opts ...leasehold.Option) locking {
		return func(c *cast) taking { return c.a.Mutex(key, opts...).Lock }
	}
	all := []*entry{
		single(false, "Mutex.Lock", "", nil, mutex()),
		single(false, "Mutex.Lock", "handed over", soon, mutex()),
		single(false, "Mutex.Lock", "WithMinToken", nil, func(c *cast) taking {
			return c.a.Mutex(key, leasehold.WithMinToken(time.Now().Add(time.Hour).UnixMicro())).Lock
		}).isAhead(),
		single(false, "Mutex.Lock", "WithRetry", soon, mutex(leasehold.WithRetry(leasehold.Exponential(20*time.Millisecond, time.Second)))),
		single(false, "Mutex.Lock", "Barging", soon, mutex(leasehold.WithPolicy(leasehold.Barging))),
		single(false, "Mutex.Lock", "WithReentrantOwner", soon, mutex(leasehold.WithReentrantOwner("A"))),
		single(false, "Mutex.Lock", "WithLocalHandover", soon, mutex(leasehold.WithLocalHandover(4))),
		single(false, "Mutex.Lock", "WithLocalHandover, passed on in the client", passedOn, mutex(leasehold.WithLocalHandover(4))),
		single(false, "Mutex.Lock", "WithMinHold and WithLockDelay", nil, mutex(leasehold.WithMinHold(100*time.Millisecond), leasehold.WithLockDelay(100*time.Millisecond))),
		single(false, "Mutex.Lock", "WithMaxWait", held(false, 2*time.Second), mutex(leasehold.WithMaxWait(time.Second))).isShort(),
		single(false, "Mutex.Lock", "WithMaxOutage(0)", soon, mutex(leasehold.WithMaxOutage(0))),
		single(false, "Mutex.Lock", "WithMaxRenewAttempts", nil, mutex(leasehold.WithMaxRenewAttempts(2))).tiresSoon(),
		single(false, "Mutex.Lock", "WithoutRenewal", soon, mutex(leasehold.WithoutRenewal())).isShort(),
		single(false, "Mutex.Lock", "WithMaxHold", soon, mutex(leasehold.WithMaxHold(time.Second))).isShort(),
		single(false, "Mutex.TryLock", "", nil, tryMutex),
		single(false, "RWMutex.Lock", "", nil, func(c *cast) taking { return c.a.RWMutex(key).Lock }),
		single(false, "RWMutex.TryLock", "", nil, func(c *cast) taking { return c.a.RWMutex(key).TryLock }),
	}
	shared := []*entry{
		single(false, "RWMutex.Lock", "WritersFirst, after a reader", held(true, 700*time.Millisecond), func(c *cast) taking {
			return c.a.RWMutex(key, leasehold.WithPolicy(leasehold.WritersFirst)).Lock
		}),
		single(true, "RWMutex.RLock", "ReadersFirst, after a writer", soon, func(c *cast) taking {
			return c.a.RWMutex(key, leasehold.WithPolicy(leasehold.ReadersFirst)).RLock
		}),
		single(false, "Mutex.Lock", "WithStrictOrder", soon, mutex(leasehold.WithStrictOrder())),
		single(false, "RWMutex.Lock", "after a reader", held(true, 700*time.Millisecond), func(c *cast) taking { return c.a.RWMutex(key).Lock }),
		single(true, "RWMutex.RLock", "", nil, func(c *cast) taking { return c.a.RWMutex(key).RLock }),
		single(true, "RWMutex.RLock", "after a writer", soon, func(c *cast) taking { return c.a.RWMutex(key).RLock }),
		single(true, "RWMutex.RLock", "beside a reader", held(true, time.Minute/4), func(c *cast) taking { return c.a.RWMutex(key).RLock }),
		single(true, "RWMutex.TryRLock", "", nil, func(c *cast) taking { return c.a.RWMutex(key).TryRLock }),
		single(true, "RLocker.Lock", "", soon, func(c *cast) taking { return c.a.RWMutex(key).RLocker().Lock }),
		single(true, "RLocker.TryLock", "", nil, func(c *cast) taking { return c.a.RWMutex(key).RLocker().TryLock }),
		single(true, "Semaphore.Lock", "", nil, func(c *cast) taking { return c.a.Semaphore(key, 2).Lock }),
		single(true, "Semaphore.Lock", "handed over", soon, func(c *cast) taking { return c.a.Semaphore(key, 2).Lock }),
		single(true, "Semaphore.TryLock", "", nil, tryPlace),
		single(true, "Semaphore.LockN", "", soon, func(c *cast) taking {
			return func(ctx context.Context) (*leasehold.Lease, error) { return c.a.Semaphore(key, 2).LockN(ctx, 2) }
		}),
		single(true, "Semaphore.TryLockN", "", nil, func(c *cast) taking {
			return func(ctx context.Context) (*leasehold.Lease, error) { return c.a.Semaphore(key, 2).TryLockN(ctx, 2) }
		}),
		single(true, "Places.Lock", "", soon, func(c *cast) taking { return c.a.Semaphore(key, 2).Places(2).Lock }),
		single(true, "Places.TryLock", "", nil, func(c *cast) taking { return c.a.Semaphore(key, 2).Places(2).TryLock }),
	}
	for _, e := range shared {
		if !isOnQuorum(e) {
			e.notOn = append(e.notOn, notOnQuorum...)
		}
	}
	return append(all, shared...)
}

// others returns the entries that take no lock, or several.
func others() []*entry {
	soon := held(false, 700*time.Millisecond)
	bg := context.Background()
	return []*entry{
		{of: []string{"Mutex.Lock"}, situation: "re-entry", prepare: mine, keeps: true, call: func(ctx context.Context, c *cast) error {
			inner, end := context.WithCancelCause(c.outer.Context())
			defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
			if ctx.Err() != nil {
				end(context.Cause(ctx))
			}
			l, err := c.a.Mutex(key).Lock(inner)
			if err != nil {
				return err
			}
			c.enters(l, false)
			defer c.leaves(l)
			return l.Release()
		}},
		{of: []string{"Mutex.Lock"}, situation: "wanted by another client", call: func(ctx context.Context, c *cast) error {
			c.wg.Go(func() {
				for range 20 {
					time.Sleep(100 * time.Millisecond)
					l, err := c.b.Mutex(key).TryLock(bg)
					if err != nil {
						continue
					}
					c.enters(l, false)
					time.Sleep(10 * time.Millisecond)
					c.leaves(l)
					if err := l.Release(); err != nil && !c.lying() {
						c.wrong("B releases: %v", err)
					}
				}
			})
			return c.granted(false)(c.a.Mutex(key).Lock(ctx))
		}},
		{of: []string{"Mutex.TryLock"}, situation: "again and again", slow: true, prepare: func(c *cast) error { return c.again(bg) }, call: func(ctx context.Context, c *cast) error { return c.again(ctx) }},
		{of: []string{"Client.Acquire"}, prepare: soon, waits: true, slow: true, mayLose: true, call: func(ctx context.Context, c *cast) error {
			inner, release, err := c.a.Acquire(ctx, key, ttl)
			if err != nil {
				return err
			}
			_ = c.working(inner)
			return release()
		}},
		{of: []string{"Do"}, prepare: soon, waits: true, slow: true, leaves: true, mayLose: true, call: func(ctx context.Context, c *cast) error {
			return leasehold.Do(ctx, c.a.Mutex(key), c.working)
		}},
		{of: []string{"Do"}, situation: "with All", slow: true, leaves: true, mayLose: true, call: func(ctx context.Context, c *cast) error {
			return leasehold.Do(ctx, leasehold.All(c.a.Mutex(key), c.a.Mutex("k2")), c.working)
		}},
		{of: []string{"TryDo"}, slow: true, leaves: true, mayLose: true, call: func(ctx context.Context, c *cast) error {
			_, err := leasehold.TryDo(ctx, c.a.Mutex(key), c.working)
			return err
		}},
		{of: []string{"Multi.Lock", "All"}, prepare: soon, waits: true, call: func(ctx context.Context, c *cast) error {
			return c.several(leasehold.All(c.a.Mutex(key), c.a.Mutex("k2")).Lock(ctx))
		}},
		{of: []string{"Multi.Lock"}, situation: "of which one is broken", slow: true, keeps: true, call: func(ctx context.Context, c *cast) error {
			l, err := leasehold.All(c.a.Mutex(key), c.a.Mutex("k2")).Lock(ctx)
			if err != nil {
				return err
			}
			first := l.Parts()[0]
			c.enters(l.Parts()[1], false)
			defer c.leaves(l.Parts()[1])
			if err := c.b.Break(bg, key, first.ID(), "by hand"); err != nil {
				_ = l.Release()
				return nil
			}
			select {
			case <-l.Context().Done():
			case <-time.After(2 * c.d.ttl()):
				c.wrong("one of two was broken, and the whole lives")
			}
			_ = l.Release()
			return nil
		}},
		{of: []string{"Multi.TryLock"}, call: func(ctx context.Context, c *cast) error {
			return c.several(leasehold.All(c.a.Mutex(key), c.a.Mutex("k2")).TryLock(ctx))
		}},
		{of: []string{"MultiLease.Extend"}, prepare: two, keeps: true, call: func(ctx context.Context, c *cast) error {
			return c.multi.Extend(ctx, 2*ttl)
		}},
		{of: []string{"MultiLease.Release"}, blind: true, prepare: two, leaves: true, keeps: true, slow: true, call: func(_ context.Context, c *cast) error {
			for _, l := range c.multi.Parts() {
				defer c.leaves(l)
			}
			return c.multi.Release()
		}},
		{of: []string{"Lease.Extend"}, prepare: mine, keeps: true, call: func(ctx context.Context, c *cast) error {
			err := c.outer.Extend(ctx, 2*ttl)
			left, since := c.outer.Remaining(), time.Now()
			if snap := c.look(key); err == nil && left > 0 && c.outer.Context().Err() == nil && !c.lying() {
				left -= time.Since(since)
				if len(snap.Holders) != 1 || snap.Holders[0].Remaining < left && len(c.tables) == 1 {
					c.wrong("extended, and in the store %+v", snap)
				}
			}
			return err
		}},
		{of: []string{"Lease.Release"}, blind: true, prepare: mine, leaves: true, keeps: true, call: func(_ context.Context, c *cast) error {
			defer c.leaves(c.outer)
			return c.outer.Release()
		}},
		{of: []string{"Lease.Downgrade"}, prepare: mine, keeps: true, call: func(ctx context.Context, c *cast) error {
			c.mu.Lock()
			c.live[len(c.live)-1].shared = true // from now on it reads at most
			c.mu.Unlock()
			err := c.outer.Downgrade(ctx)
			if l, inner := c.a.Mutex(key).TryLock(c.outer.Context()); inner == nil && errors.Is(err, leasehold.ErrUnknown) {
				c.wrong("it may be a reader, and writes")
				_ = l.Release()
			} else if inner == nil {
				_ = l.Release()
			}
			if snap := c.look(key); err == nil && !c.lying() && c.outer.Context().Err() == nil && (len(snap.Holders) != 1 || len(c.tables) == 1 && snap.Holders[0].Mode != driver.Shared) {
				c.wrong("downgraded, and in the store %+v", snap)
			}
			return err
		}},
		{of: []string{"Lease.Detach"}, stays: true, prepare: mine, keeps: true, call: func(ctx context.Context, c *cast) error {
			id := c.outer.ID()
			err := c.outer.Detach(ctx)
			if err != nil {
				return err
			}
			c.leaves(c.outer)
			if snap := c.look(key); !c.lying() && !slices.ContainsFunc(snap.Holders, func(h driver.Holder) bool { return h.ID == id }) {
				c.wrong("detached, and in the store %+v", snap)
			}
			return nil
		}},
		{of: []string{"Lease.Detach"}, situation: "re-entered meanwhile", stays: true, slow: true, prepare: mine, keeps: true, call: func(ctx context.Context, c *cast) error {
			id := c.outer.ID()
			inside := make(chan *leasehold.Lease, 1)
			go func() {
				time.Sleep(slowness / 4)
				l, _ := c.a.Mutex(key).TryLock(c.outer.Context())
				inside <- l
			}()
			err := c.outer.Detach(ctx)
			if err == nil {
				c.leaves(c.outer)
			}
			l := <-inside
			if l == nil {
				return err
			}
			c.enters(l, false)
			defer c.leaves(l)
			released := l.Release()
			snap := c.look(key)
			if err == nil && released == nil && !c.lying() && !slices.ContainsFunc(snap.Holders, func(h driver.Holder) bool { return h.ID == id }) {
				c.wrong("the release of the re-entered lease ended the detached lease: %+v", snap)
			}
			return err
		}},
		{of: []string{"Mutex.Adopt"}, stays: true, prepare: locking(tryMutex).left(false), keeps: true, call: func(ctx context.Context, c *cast) error {
			return c.granted(false)(c.a.Mutex(key).Adopt(ctx, c.outer.ID()))
		}},
		{of: []string{"RWMutex.Adopt"}, stays: true, prepare: locking(tryMutex).left(false), keeps: true, call: func(ctx context.Context, c *cast) error {
			return c.granted(false)(c.a.RWMutex(key).Adopt(ctx, c.outer.ID()))
		}},
		{of: []string{"RWMutex.RAdopt"}, stays: true, keeps: true, prepare: locking(func(c *cast) taking { return c.a.RWMutex(key).TryRLock }).left(true), call: func(ctx context.Context, c *cast) error {
			return c.granted(true)(c.a.RWMutex(key).RAdopt(ctx, c.outer.ID()))
		}},
		{of: []string{"Semaphore.Adopt"}, stays: true, notOn: notOnQuorum, keeps: true, prepare: locking(tryPlace).left(true), call: func(ctx context.Context, c *cast) error {
			return c.granted(true)(c.a.Semaphore(key, 2).Adopt(ctx, c.outer.ID()))
		}},
		{of: []string{"Semaphore.Resize"}, notOn: notOnQuorum, keeps: true, prepare: locking(tryPlace).holds(true), call: func(ctx context.Context, c *cast) error {
			err := c.a.Semaphore(key, 2).Resize(ctx, 3)
			if snap := c.look(key); err == nil && !c.lying() && c.outer.Context().Err() == nil && snap.Limit != 3 {
				c.wrong("resized, and in the store %+v", snap)
			}
			return err
		}},
		{of: []string{"Election.Lead", "Election.Resign", "Election.IsLeader"}, prepare: soon, waits: true, slow: true, leaves: true, mayLose: true, call: func(ctx context.Context, c *cast) error {
			e := c.a.Election(key, "here")
			return e.Lead(ctx, func(ctx context.Context, l *leasehold.Lease) error {
				if !e.IsLeader() && l.Context().Err() == nil {
					c.wrong("it leads, and does not know")
				}
				c.strays.Go(func() { c.follows(ctx, l) })
				_ = c.working(ctx)
				if l.Context().Err() != nil && e.IsLeader() {
					c.wrong("its lease is over, and IsLeader returns true")
				}
				if e.Resign(); ctx.Err() == nil {
					c.wrong("it has resigned, and its term goes on")
				}
				return nil
			})
		}},
		{of: []string{"Election.Lead"}, situation: "which panics", slow: true, leaves: true, mayLose: true, call: func(ctx context.Context, c *cast) (err error) {
			defer func() {
				what := recover()
				if err, _ := what.(error); what != nil && !errors.Is(err, errPanic) {
					panic(what)
				}
				if c.d.fate == refused && c.d.long && err == nil { // a panic hides the error of the release
					err = leasehold.ErrUnknown
				}
			}()
			return c.a.Election(key, "here").Lead(ctx, func(context.Context, *leasehold.Lease) error { panic(errPanic) })
		}},
		{of: []string{"Election.Leader"}, prepare: mine, keeps: true, reads: true, call: func(ctx context.Context, c *cast) error {
			l, err := c.a.Election(key, "here").Leader(ctx)
			if err == nil && c.outer.Context().Err() == nil && l.ID != c.outer.ID() && !c.lying() {
				c.wrong("%+v leads", l)
			}
			return err
		}},
		{of: []string{"Election.Observe"}, prepare: mine, keeps: true, reads: true, call: func(ctx context.Context, c *cast) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute/2)
			defer cancel()
			for l, err := range c.a.Election(key, "here").Observe(ctx) {
				if err == nil && c.outer.Context().Err() == nil && l.ID != c.outer.ID() && !c.lying() {
					c.wrong("%+v leads", l)
				}
				if err == nil || errors.Is(err, leasehold.ErrClosed) {
					return err
				}
			}
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				c.wrong("the store is back, and Observe yields no leader")
			}
			return nil
		}},
		{of: []string{"Client.Inspect"}, prepare: mine, keeps: true, reads: true, call: func(ctx context.Context, c *cast) error {
			snap, err := c.a.Inspect(ctx, key)
			if err == nil && !c.lying() && c.outer.Context().Err() == nil && (len(snap.Holders) != 1 || snap.Holders[0].ID != c.outer.ID()) {
				c.wrong("the picture is %+v", snap)
			}
			return err
		}},
		{of: []string{"Client.Ping"}, prepare: mine, keeps: true, reads: true, call: func(ctx context.Context, c *cast) error {
			return c.a.Ping(ctx)
		}},
		{of: []string{"Client.Keys"}, prepare: mine, keeps: true, reads: true, call: func(ctx context.Context, c *cast) error {
			n := 0
			for k, err := range c.a.Keys(ctx, "") {
				if err != nil {
					return err
				}
				if n++; k != key { // it may come twice
					c.wrong("the key %q", k)
				}
			}
			if n == 0 && !c.lying() && c.outer.Context().Err() == nil {
				c.wrong("%d keys", n)
			}
			return nil
		}},
		{of: []string{"Client.Break"}, keeps: true, prepare: locking(func(c *cast) taking {
			return c.b.Mutex(key).TryLock
		}).holds(false), call: func(ctx context.Context, c *cast) error {
			// From the request on the lease may end.
			c.leaves(c.outer)
			err := c.a.Break(ctx, key, c.outer.ID(), "by hand")
			if snap := c.look(key); err == nil && len(snap.Holders) > 0 && !c.lying() {
				c.wrong("broken, and in the store %+v", snap)
			}
			if err != nil {
				_ = c.outer.Release()
			}
			return err
		}},
		{of: []string{"Client.Close"}, blind: true, prepare: mine, leaves: true, keeps: true, slow: true, call: func(_ context.Context, c *cast) error {
			defer c.leaves(c.outer)
			err := c.a.Close()
			if !errors.Is(context.Cause(c.outer.Context()), leasehold.ErrClosed) && c.outer.Context().Err() == nil {
				c.wrong("closed, and the lease is live")
			}
			return err
		}},
	}
}

var errPanic = errors.New("panic")

func (c *cast) several(l *leasehold.MultiLease, err error) error {
	if err == nil {
		for _, p := range l.Parts() {
			c.enters(p, false)
		}
	}
	return err
}
