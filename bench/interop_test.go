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

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// other is a library that takes a lock with SET NX PX under the lock's name.
type other struct {
	name string
	// try takes the lock and returns what gives it back, nil if it is taken.
	try func(t *testing.T, client *redis.Client, key string) (release func())
}

const otherTTL = 30 * time.Second

func others() []other {
	return []other{{"SET NX PX", trySet}, {"redsync", tryRedsync}, {"redislock", tryRedislock}}
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

// eachPair runs f for every store of ours and every library beside it.
func eachPair(t *testing.T, f func(t *testing.T, p *pair)) {
	for name, open := range plainStores() {
		for _, o := range others() {
			t.Run(name+"/"+o.name, func(t *testing.T) {
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
				f(t, &pair{t, o, srv, client, store})
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
}

// key has what names have in other systems.
const key = "orders/42: {a} b"

func (p *pair) tryOther() func() {
	p.t.Helper()
	return p.other.try(p.t, p.srv.Client(), key)
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
	v, err := p.srv.Client().Get(context.Background(), key).Result()
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
		lease, err := p.client.Mutex(key).Lock(p.t.Context())
		if err != nil {
			p.t.Errorf("wait: %v", err)
		}
		got <- lease
	}()
	p.eventually("the waiter is queued", func() bool {
		snap, err := p.client.Inspect(p.t.Context(), key)
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
		if _, err := p.client.Mutex(key).TryLock(t.Context()); !errors.As(err, &held) || !errors.Is(err, leasehold.ErrHeld) {
			t.Fatalf("TryLock while %s holds: %v", p.other.name, err)
		}
		if held.Remaining <= 0 || held.Remaining > otherTTL {
			t.Errorf("remaining time of the other's lock: %v", held.Remaining)
		}
		got := p.queue(1)
		if after := p.value(); after != before {
			t.Errorf("the other's lock was changed from %q to %q", before, after)
		}
		if left := p.srv.Client().PTTL(t.Context(), key).Val(); left <= 0 || left > otherTTL {
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
		first, err := p.client.Mutex(key).TryLock(t.Context())
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

// A hand-over leaves no moment in which the key is free.
func TestInterop_OthersCannotSlipInAtAHandOver(t *testing.T) {
	eachPair(t, func(t *testing.T, p *pair) {
		first, err := p.client.Mutex(key).TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var waiting []<-chan *leasehold.Lease
		for i := range 10 {
			waiting = append(waiting, p.queue(i+1))
		}
		var stop atomic.Bool
		var spinner sync.WaitGroup
		spinner.Go(func() {
			for !stop.Load() {
				if release := p.tryOther(); release != nil {
					t.Errorf("%s slipped in", p.other.name)
					release()
					return
				}
			}
		})
		lease := first
		for _, got := range waiting {
			if err := lease.Release(); err != nil {
				t.Error(err)
			}
			lease = p.served(got)
		}
		stop.Store(true)
		spinner.Wait()
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
		p.otherGetsIt("after the last release")
	})
}

func TestInterop_ReadersAndOthersExcludeEachOther(t *testing.T) {
	eachPair(t, func(t *testing.T, p *pair) {
		ask := func(id string) driver.State {
			t.Helper()
			reply, err := p.store.Acquire(t.Context(), driver.Request{Key: key, ID: id, Mode: driver.Shared, TTL: otherTTL, Since: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			return reply.State
		}
		leave := func(id string) {
			t.Helper()
			if reply, err := p.store.Release(t.Context(), driver.Ref{Key: key, ID: id}); err != nil || reply.State != driver.Released {
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
		p.otherIsRefused("beside two readers")
		leave("reader-2")
		p.otherIsRefused("beside one reader")
		leave("reader-3")
		p.otherGetsIt("after the last reader left")
	})
}

// What is no lock at all is neither waited for nor touched.
func TestInterop_OtherDataIsReportedAndLeftAlone(t *testing.T) {
	eachPair(t, func(t *testing.T, p *pair) {
		redisClient := p.srv.Client()
		for name, write := range map[string]func() error{
			"string without expiry": func() error { return redisClient.Set(t.Context(), key, "settings", 0).Err() },
			"list":                  func() error { return redisClient.RPush(t.Context(), key, "job").Err() },
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
			before := redisClient.Dump(t.Context(), key).Val()
			if _, err := p.client.Mutex(key).TryLock(t.Context()); !errors.Is(err, leasehold.ErrMismatch) {
				t.Errorf("TryLock on a %s: %v", name, err)
			}
			if after := redisClient.Dump(t.Context(), key).Val(); after != before {
				t.Errorf("the %s was changed", name)
			}
			redisClient.Del(t.Context(), key)
		}
	})
}
