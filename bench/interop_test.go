package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/again"
	"github.com/leasehold-go/leasehold/internal/test/await"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

const otherTTL = 30 * time.Second

// other is a library that takes a lock with SET NX PX under the lock's name, or under a prefix
// and the name.
type other struct {
	name   string
	before string
	// open returns a function that takes the lock without a wait.
	open func(t *testing.T, client *redis.Client) lockFunc
	// taken reports whether an error means that the lock is taken.
	taken func(error) bool
}

func others() []other {
	is := func(target error) func(error) bool {
		return func(err error) bool { return errors.Is(err, target) }
	}
	return []other{
		{"SET NX PX", "", openBare, is(errBusy)},
		{"redsync", "", openRedsync, func(err error) bool {
			var taken *redsync.ErrTaken
			return errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed)
		}},
		{"redislock", "", openRedislock, is(redislock.ErrNotObtained)},
		{"rueidislock", "rueidislock:0:", openRueidislock, is(rueidislock.ErrNotLocked)},
	}
}

func openBare(t *testing.T, client *redis.Client) lockFunc {
	p := rawGoRedis().open(client.Options().Addr, settings{ttl: otherTTL})
	t.Cleanup(p.Close)
	return p.Lock
}

func openRedsync(_ *testing.T, client *redis.Client) lockFunc {
	locks := redsync.New(goredis.NewPool(client))
	return redsyncLock(locks, settings{}, redsync.WithExpiry(otherTTL), redsync.WithTries(1))
}

func openRedislock(_ *testing.T, client *redis.Client) lockFunc {
	locks := redislock.New(client)
	return func(ctx context.Context, key string) (held, error) {
		lock, err := locks.Obtain(ctx, key, otherTTL, nil)
		return redislockHeld{lock}, err
	}
}

// openRueidislock takes one key for a lock, not three as by default.
func openRueidislock(t *testing.T, client *redis.Client) lockFunc {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{client.Options().Addr}},
		KeyMajority:  1, NoLoopTracking: true, KeyValidity: otherTTL,
		TryNextAfter: 5 * time.Second, // for a request: by default it takes one of 20 ms for failed
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	return func(ctx context.Context, key string) (held, error) {
		ctx, release, err := locker.TryWithContext(ctx, key)
		return releaser(func() error {
			defer release()
			return ctx.Err()
		}), err
	}
}

// plainStores are the ways to a store without a prefix.
func plainStores() map[string]func(*redistest.Server) (driver.Driver, error) {
	return map[string]func(*redistest.Server) (driver.Driver, error){
		"redisdriver.New": func(srv *redistest.Server) (driver.Driver, error) {
			return redisdriver.New(srv.Client(), redisdriver.WithPrefix(""))
		},
		"redisdriver.Open": func(srv *redistest.Server) (driver.Driver, error) {
			return redisdriver.Open(srv.URL() + "?prefix=")
		},
		"rueidisdriver.New": func(srv *redistest.Server) (driver.Driver, error) {
			return rueidisdriver.New(rueidis.ClientOption{InitAddress: []string{srv.Addr()}}, rueidisdriver.WithPrefix(""))
		},
		"rueidisdriver.Open": func(srv *redistest.Server) (driver.Driver, error) {
			return rueidisdriver.Open(srv.URL() + "?prefix=")
		},
	}
}

// eachPair runs f for every store of ours with every library.
func eachPair(t *testing.T, f func(t *testing.T, p *pair)) {
	for way, open := range plainStores() {
		for _, o := range others() {
			t.Run(way+"/"+o.name, func(t *testing.T) {
				srv := redistest.Start(t)
				store, err := open(srv)
				if err != nil {
					t.Fatal(err)
				}
				client, err := leasehold.New(store)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = client.Close() })
				f(t, &pair{t, o, o.open(t, srv.Client()), srv, client, store, o.before + name})
			})
		}
	}
}

// pair is Leasehold and another library on one server.
type pair struct {
	t      *testing.T
	other  other
	try    lockFunc // of the other library
	srv    *redistest.Server
	client *leasehold.Client
	store  driver.Driver
	key    string // in Redis
}

// name has characters that other systems use in names.
const name = "orders/42: {a} b"

// tryOther returns the lock of the other library, or nil if it is taken.
func (p *pair) tryOther() held {
	p.t.Helper()
	h, err := p.try(context.Background(), name)
	switch {
	case err == nil:
		return h
	case !p.other.taken(err):
		p.t.Fatal(err)
	}
	return nil
}

func (p *pair) otherIsRefused(when string) {
	p.t.Helper()
	if p.tryOther() != nil {
		p.t.Fatalf("%s got the lock %s", p.other.name, when)
	}
}

func (p *pair) otherGetsIt(when string) held {
	p.t.Helper()
	h := p.tryOther()
	if h == nil {
		p.t.Fatalf("%s is refused %s", p.other.name, when)
	}
	return h
}

func (p *pair) release(h held) {
	p.t.Helper()
	if err := h.Release(); err != nil {
		p.t.Error(err)
	}
}

// value returns the value of the key, which has to be a plain string.
func (p *pair) value() string {
	p.t.Helper()
	v, err := p.srv.Client().Get(context.Background(), p.key).Result()
	if err != nil {
		p.t.Fatalf("the key is not a plain string: %v", err)
	}
	return v
}

// queue starts a wait for the lock and returns when the store has its ticket.
func (p *pair) queue(waiters int) <-chan *leasehold.Lease {
	p.t.Helper()
	got := make(chan *leasehold.Lease, 1)
	go func() {
		lease, err := p.client.Mutex(p.key).Lock(p.t.Context())
		if err != nil {
			p.t.Errorf("wait: %v", err)
		}
		got <- lease
	}()
	await.Until(p.t, func() bool {
		snap, err := p.client.Inspect(p.t.Context(), p.key)
		return err == nil && len(snap.Waiters) == waiters
	}, "the waiter is queued")
	return got
}

func (p *pair) served(got <-chan *leasehold.Lease) *leasehold.Lease {
	p.t.Helper()
	select {
	case lease := <-got:
		if lease == nil {
			p.t.FailNow()
		}
		return lease
	case <-time.After(10 * time.Second):
		p.t.Fatal("the waiter was not served within 10 s")
		return nil
	}
}

// reader asks for a place of a reader, and returns the answer.
func (p *pair) reader(id string) driver.State {
	p.t.Helper()
	req := driver.Request{Key: p.key, ID: id, Mode: driver.Shared, TTL: otherTTL, Since: time.Now()}
	reply, err := p.store.Acquire(p.t.Context(), req)
	if err != nil {
		p.t.Fatal(err)
	}
	return reply.State
}

func TestInterop_OthersKeepLeaseholdOut(t *testing.T) {
	eachPair(t, func(t *testing.T, p *pair) {
		theirs := p.otherGetsIt("at the start")
		before := p.value()
		var held *leasehold.HeldError
		if _, err := p.client.Mutex(p.key).TryLock(t.Context()); !errors.As(err, &held) || !errors.Is(err, leasehold.ErrHeld) {
			t.Fatalf("TryLock while %s holds: %v", p.other.name, err)
		}
		if held.Remaining <= 0 || held.Remaining > otherTTL {
			t.Errorf("remaining time of the other's lock: %v", held.Remaining)
		}
		if state := p.reader("reader"); state != driver.Busy {
			t.Errorf("a reader while %s holds: %v", p.other.name, state)
		}
		got := p.queue(1)
		if after := p.value(); after != before {
			t.Errorf("the other's lock was changed from %q to %q", before, after)
		}
		if left := p.srv.Client().PTTL(t.Context(), p.key).Val(); left <= 0 || left > otherTTL {
			t.Errorf("the other's lock lives for another %v", left)
		}
		if len(got) != 0 {
			t.Fatalf("Lock was granted while %s holds", p.other.name)
		}
		p.release(theirs)
		lease := p.served(got)
		if lease.Token() <= 0 {
			t.Errorf("token %d", lease.Token())
		}
		p.otherIsRefused("while Leasehold holds it")
		p.release(lease)
		p.release(p.otherGetsIt("after the release"))
	})
}

// stillness is half of the second for which a lock that was handed over waits for its
// holder: the machine may stand still for as long, and then the lock is free.
const stillness = 500 * time.Millisecond

// A hand-over leaves no moment in which the key is free.
func TestInterop_LeaseholdKeepsOthersOut(t *testing.T) {
	eachPair(t, func(t *testing.T, p *pair) {
		if err := again.IfStalled(t, stillness, p.handOvers); err != nil {
			t.Error(err)
		}
		p.release(p.otherGetsIt("after the last release"))
	})
}

// handOvers has ten waiters be handed the lock, and the other library try to take it all the
// time. It returns an error if that got it.
func (p *pair) handOvers() error {
	p.t.Helper()
	lease, err := p.client.Mutex(p.key).TryLock(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	p.value()
	p.otherIsRefused("while Leasehold holds it alone")
	var waiting []<-chan *leasehold.Lease
	for i := range 10 {
		waiting = append(waiting, p.queue(i+1))
	}
	p.value()
	p.otherIsRefused("while Leasehold holds it and waiters are queued")
	var slipped, stop atomic.Bool
	var spinner sync.WaitGroup
	spinner.Go(func() {
		for !stop.Load() && !slipped.Load() {
			if theirs := p.tryOther(); theirs != nil {
				slipped.Store(true)
				p.release(theirs)
			}
		}
	})
	for _, got := range waiting {
		p.release(lease)
		lease = p.served(got)
	}
	stop.Store(true)
	spinner.Wait()
	p.otherIsRefused("after it was handed to the last waiter")
	p.release(lease)
	if slipped.Load() {
		return fmt.Errorf("%s got the lock at a hand-over", p.other.name)
	}
	return nil
}

func TestInterop_ReadersKeepOthersOut(t *testing.T) {
	eachPair(t, func(t *testing.T, p *pair) {
		readers := []string{"reader-1", "reader-2"}
		for _, id := range readers {
			if state := p.reader(id); state != driver.Granted {
				t.Fatalf("%s: %v", id, state)
			}
		}
		p.value()
		for _, id := range readers {
			p.otherIsRefused("before the end of " + id)
			reply, err := p.store.Release(t.Context(), driver.Ref{Key: p.key, ID: id})
			if err != nil || reply.State != driver.Released {
				t.Fatalf("%s leaves: %v, %v", id, reply.State, err)
			}
		}
		p.release(p.otherGetsIt("after the last reader left"))
	})
}
