package main

import (
	"context"
	"crypto/rand"
	"errors"
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
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// other is a library that takes a lock with SET NX PX under the lock's name, or under a prefix
// and the name.
type other struct {
	name   string
	before string
	// try takes the lock and returns its release, nil if it is taken.
	try func(t *testing.T, client *redis.Client, key string) (release func())
}

const otherTTL = 30 * time.Second

func others() []other {
	return []other{
		{name: "SET NX PX", try: trySet}, {name: "redsync", try: tryRedsync}, {name: "redislock", try: tryRedislock},
		{name: "rueidislock", before: "rueidislock:0:", try: tryRueidislock},
	}
}

func trySet(t *testing.T, client *redis.Client, key string) func() {
	t.Helper()
	value := rand.Text()
	ok, err := client.SetNX(context.Background(), key, value, otherTTL).Result()
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return nil
	}
	return func() {
		t.Helper()
		if n, err := redis.NewScript(deleteIfMine).Run(context.Background(), client, []string{key}, value).Int64(); n != 1 || err != nil {
			t.Errorf("compare and delete: %d, %v", n, err)
		}
	}
}

func tryRedsync(t *testing.T, client *redis.Client, key string) func() {
	t.Helper()
	m := redsync.New(goredis.NewPool(client)).NewMutex(key, redsync.WithExpiry(otherTTL))
	var taken *redsync.ErrTaken
	if err := m.TryLock(); errors.As(err, &taken) {
		return nil
	} else if err != nil && !errors.Is(err, redsync.ErrFailed) {
		t.Fatal(err)
	} else if err != nil {
		return nil
	}
	return func() {
		t.Helper()
		if ok, err := m.Unlock(); !ok || err != nil {
			t.Errorf("redsync unlock: %t, %v", ok, err)
		}
	}
}

func tryRedislock(t *testing.T, client *redis.Client, key string) func() {
	t.Helper()
	l, err := redislock.New(client).Obtain(context.Background(), key, otherTTL, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := l.Release(context.Background()); err != nil {
			t.Errorf("redislock release: %v", err)
		}
	}
}

// tryRueidislock takes one key for a lock, not three as by default.
func tryRueidislock(t *testing.T, client *redis.Client, key string) func() {
	t.Helper()
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{client.Options().Addr}},
		KeyMajority:  1, NoLoopTracking: true, KeyValidity: otherTTL,
		TryNextAfter: 5 * time.Second, // for a request: by default it takes one of 20 ms for failed
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel, err := locker.TryWithContext(context.Background(), key)
	if err != nil {
		locker.Close()
		if !errors.Is(err, rueidislock.ErrNotLocked) {
			t.Fatal(err)
		}
		return nil
	}
	return func() {
		t.Helper()
		if err := ctx.Err(); err != nil {
			t.Errorf("rueidislock lost the lock: %v", err)
		}
		cancel()
		locker.Close()
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
				f(t, &pair{t, o, srv, client, store, o.before + name})
			})
		}
	}
}

// pair is Leasehold and another library on one server.
type pair struct {
	t      *testing.T
	other  other
	srv    *redistest.Server
	client *leasehold.Client
	store  driver.Driver
	key    string // in Redis
}

// name has characters that other systems use in names.
const name = "orders/42: {a} b"

func (p *pair) tryOther() func() {
	p.t.Helper()
	return p.other.try(p.t, p.srv.Client(), name)
}

func (p *pair) otherIsRefused(when string) {
	p.t.Helper()
	if release := p.tryOther(); release != nil {
		p.t.Fatalf("%s got the lock %s", p.other.name, when)
	}
}

func (p *pair) otherGetsIt(when string) {
	p.t.Helper()
	release := p.tryOther()
	if release == nil {
		p.t.Fatalf("%s is refused %s", p.other.name, when)
	}
	release()
}

func (p *pair) value() string {
	p.t.Helper()
	v, err := p.srv.Client().Get(context.Background(), p.key).Result()
	if err != nil {
		p.t.Fatalf("the key is not a plain string: %v", err)
	}
	return v
}

// queue lets f wait for the lock and returns when the store has its ticket.
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
	p.eventually("the waiter is queued", func() bool {
		snap, err := p.client.Inspect(p.t.Context(), p.key)
		return err == nil && len(snap.Waiters) == waiters
	})
	return got
}

func (p *pair) eventually(what string, ok func() bool) {
	p.t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("not within 10 s: %s", what)
		}
	}
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

func TestInterop_OthersKeepLeaseholdOut(t *testing.T) {
	eachPair(t, func(t *testing.T, p *pair) {
		release := p.tryOther()
		if release == nil {
			t.Fatal("the lock is not free at the start")
		}
		before := p.value()
		var held *leasehold.HeldError
		if _, err := p.client.Mutex(p.key).TryLock(t.Context()); !errors.As(err, &held) || !errors.Is(err, leasehold.ErrHeld) {
			t.Fatalf("TryLock while %s holds: %v", p.other.name, err)
		}
		if held.Remaining <= 0 || held.Remaining > otherTTL {
			t.Errorf("remaining time of the other's lock: %v", held.Remaining)
		}
		got := p.queue(1)
		if after := p.value(); after != before {
			t.Errorf("the other's lock was changed from %q to %q", before, after)
		}
		if left := p.srv.Client().PTTL(t.Context(), p.key).Val(); left <= 0 || left > otherTTL {
			t.Errorf("the other's lock lives for another %v", left)
		}
		select {
		case <-got:
			t.Fatalf("Lock was granted while %s holds", p.other.name)
		default:
		}
		release()
		lease := p.served(got)
		if lease.Token() <= 0 {
			t.Errorf("token %d", lease.Token())
		}
		p.otherIsRefused("while Leasehold holds it")
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
		p.otherGetsIt("after the release")
	})
}

func TestInterop_LeaseholdKeepsOthersOut(t *testing.T) {
	eachPair(t, func(t *testing.T, p *pair) {
		first, err := p.client.Mutex(p.key).TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.value()
		p.otherIsRefused("while Leasehold holds it alone")
		second := p.queue(1)
		p.value()
		p.otherIsRefused("while Leasehold holds it and a waiter is queued")
		third := p.queue(2)
		if err := first.Release(); err != nil {
			t.Error(err)
		}
		lease := p.served(second)
		p.otherIsRefused("after it was handed over")
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
		lease = p.served(third)
		p.otherIsRefused("after it was handed to the last waiter")
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
		p.otherGetsIt("after the last release")
	})
}

const (
	// stillness is half of the second for which a lock that was handed over waits for its
	// holder: the machine may stand still for as long, and then the lock is free.
	stillness = 500 * time.Millisecond
	// replays is how often hand-overs are played that this happens to.
	replays = 5
)

// A hand-over leaves no moment in which the key is free.
func TestInterop_OthersCannotSlipInAtAHandOver(t *testing.T) {
	eachPair(t, func(t *testing.T, p *pair) {
		for n := 1; ; n++ {
			slipped, slowest := p.handOvers()
			if !slipped {
				break
			}
			if slowest < stillness || n == replays {
				t.Errorf("%s slipped in, which was refused every %v at least", p.other.name, slowest)
				break
			}
			t.Logf("%s slipped in when the machine had stood still for %v", p.other.name, slowest)
		}
		p.otherGetsIt("after the last release")
	})
}

// handOvers has ten waiters be handed the lock, and the other library try to take it all the
// time. It reports whether that got it, and how long it took between two tries at most.
func (p *pair) handOvers() (slipped bool, slowest time.Duration) {
	p.t.Helper()
	lease, err := p.client.Mutex(p.key).TryLock(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	var waiting []<-chan *leasehold.Lease
	for i := range 10 {
		waiting = append(waiting, p.queue(i+1))
	}
	var stop atomic.Bool
	var spinner sync.WaitGroup
	spinner.Go(func() {
		for last := time.Now(); !stop.Load() && !slipped; last = time.Now() {
			if release := p.tryOther(); release != nil {
				slipped = true
				release()
			}
			slowest = max(slowest, time.Since(last))
		}
	})
	for _, got := range waiting {
		if err := lease.Release(); err != nil {
			p.t.Error(err)
		}
		lease = p.served(got)
	}
	stop.Store(true)
	spinner.Wait()
	if err := lease.Release(); err != nil {
		p.t.Error(err)
	}
	return slipped, slowest
}

func TestInterop_ReadersAndOthersExcludeEachOther(t *testing.T) {
	eachPair(t, func(t *testing.T, p *pair) {
		ask := func(id string) driver.State {
			t.Helper()
			reply, err := p.store.Acquire(t.Context(), driver.Request{Key: p.key, ID: id, Mode: driver.Shared, TTL: otherTTL, Since: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			return reply.State
		}
		leave := func(id string) {
			t.Helper()
			if reply, err := p.store.Release(t.Context(), driver.Ref{Key: p.key, ID: id}); err != nil || reply.State != driver.Released {
				t.Fatalf("reader leaves: %v, %v", reply.State, err)
			}
		}
		release := p.tryOther()
		if state := ask("reader-1"); state != driver.Busy {
			t.Fatalf("a reader while %s holds: %v", p.other.name, state)
		}
		release()
		for _, id := range []string{"reader-2", "reader-3"} {
			if state := ask(id); state != driver.Granted {
				t.Fatalf("%s after the release: %v", id, state)
			}
		}
		p.value()
		p.otherIsRefused("next to two readers")
		leave("reader-2")
		p.otherIsRefused("next to one reader")
		leave("reader-3")
		p.otherGetsIt("after the last reader left")
	})
}

// Data that is not a lock is neither waited for nor changed.
func TestInterop_OtherDataIsReportedAndLeftAlone(t *testing.T) {
	eachPair(t, func(t *testing.T, p *pair) {
		redisClient := p.srv.Client()
		for what, write := range map[string]func() error{
			"string without expiry": func() error { return redisClient.Set(t.Context(), p.key, "settings", 0).Err() },
			"list":                  func() error { return redisClient.RPush(t.Context(), p.key, "job").Err() },
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
			before := redisClient.Dump(t.Context(), p.key).Val()
			if _, err := p.client.Mutex(p.key).TryLock(t.Context()); !errors.Is(err, leasehold.ErrMismatch) {
				t.Errorf("TryLock on a %s: %v", what, err)
			}
			if after := redisClient.Dump(t.Context(), p.key).Val(); after != before {
				t.Errorf("the %s was changed", what)
			}
			redisClient.Del(t.Context(), p.key)
		}
	})
}
