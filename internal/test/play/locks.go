// Package play has clients contend for a lock, and updates for records, while a test makes faults, and
// judges the histories. It is for the tests of drivers and of the library.
package play

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/checker"
	"github.com/leasehold-go/leasehold/internal/test/history"
)

// patience bounds the waits of tests.
const patience = time.Minute

// Locks is a history of calls that take locks and give them back, until [Locks.Judge].
type Locks struct {
	t       testing.TB
	rules   history.Rules
	ttl     time.Duration
	wait    time.Duration
	began   time.Time
	cancel  context.CancelFunc
	clients sync.WaitGroup

	mu      sync.Mutex
	records []history.Record
	granted chan struct{} // closed at the next grant
}

// New returns an empty history, which is judged by the rules. Half of its calls wait, for the given time at
// most, unless that is 0.
func New(t testing.TB, rules history.Rules, ttl, wait time.Duration) *Locks {
	return &Locks{t: t, rules: rules, ttl: ttl, wait: wait, began: time.Now(), cancel: func() {}, granted: make(chan struct{})}
}

// Start returns a history with a client for each store, which contend for a mutex. The clients close the
// stores.
func Start(t testing.TB, ttl, wait time.Duration, stores ...driver.Driver) *Locks {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	l := New(t, history.Rules{Tokens: true}, ttl, wait)
	l.cancel = cancel
	t.Cleanup(l.end)
	for i, d := range stores {
		client, err := leasehold.New(d, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		l.clients.Go(func() {
			defer client.Close()
			for n := 0; ctx.Err() == nil; n++ {
				l.Take(ctx, Mutex("k"), client, fmt.Sprint("p", i), fmt.Sprint("p", i, ".", n))
			}
		})
	}
	return l
}

// Lock is a lock that calls take. Its record has the key, the mode, the weight and the limit, and the time
// for which all calls wait, if that is not 0.
type Lock struct {
	history.Record
	Of   func(c *leasehold.Client, opts ...leasehold.Option) leasehold.Locker
	Idle bool // calls give it back at once, without work
}

// Mutex returns a mutex.
func Mutex(key string) Lock {
	return Lock{
		Record: history.Record{Key: key, Mode: history.Exclusive},
		Of:     func(c *leasehold.Client, opts ...leasehold.Option) leasehold.Locker { return c.Mutex(key, opts...) },
	}
}

// end ends the clients.
func (l *Locks) end() {
	l.cancel()
	l.clients.Wait()
}

func (l *Locks) now() int64 { return int64(time.Since(l.began)) + 1 }

func (l *Locks) add(r history.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	if r.What == history.Got {
		close(l.granted)
		l.granted = make(chan struct{})
	}
}

// Take locks or tries to, works under the lock for a moment, and releases it. It reports whether it got the
// lock.
func (l *Locks) Take(ctx context.Context, lock Lock, client *leasehold.Client, proc, attempt string) bool {
	note := func(what string, r history.Record) {
		r.At, r.Proc, r.Attempt, r.What = l.now(), proc, attempt, what
		l.add(r)
	}
	opts := []leasehold.Option{leasehold.WithName(attempt), leasehold.WithTTL(l.ttl), leasehold.WithReleaseTimeout(2 * l.ttl)}
	ask := lock.Record
	ask.TTL, ask.Undo = int64(l.ttl), int64(2*l.ttl)
	if l.wait > 0 && rand.IntN(2) == 0 {
		ask.Wait = int64(l.wait)
	}
	take := lock.Of(client, opts...).TryLock
	if ask.Wait > 0 {
		take = lock.Of(client, append(opts, leasehold.WithMaxWait(time.Duration(ask.Wait)))...).Lock
	}
	note(history.Ask, ask)
	place := 0
	lease, err := take(leasehold.ObserveWait(ctx, func(e leasehold.WaitEvent) {
		// A greater place than before belongs to a new ticket: the previous ticket has expired.
		if place == 0 || e.Position > place {
			note(history.Queued, history.Record{Position: e.Position})
		}
		place = e.Position
	}))
	if err != nil {
		r := history.Record{Outcome: outcome(ctx, err), Note: err.Error()}
		if held := (*leasehold.HeldError)(nil); errors.As(err, &held) {
			r.Holder = held.Owner
		}
		note(history.None, r)
		return false
	}
	note(history.Got, history.Record{Lease: lease.ID(), Token: lease.Token(), Places: string(driver.PlacesOf(lease.Places())), Live: lease.Context().Err() == nil})
	for range 1 + rand.IntN(3) {
		if !lock.Idle {
			time.Sleep(rand.N(5 * time.Millisecond)) // the work under the lock
		}
		live := history.Record{At: l.now(), Proc: proc, Attempt: attempt, What: history.Live}
		if lease.Context().Err() == nil {
			l.add(live)
		}
	}
	note(history.Release, history.Record{})
	r := history.Record{Outcome: history.OK}
	if err := lease.Release(); err != nil {
		r = history.Record{Outcome: outcome(ctx, err), Note: err.Error()}
	}
	note(history.Released, r)
	return true
}

func outcome(ctx context.Context, err error) string {
	switch {
	case errors.Is(err, leasehold.ErrLost):
		return history.Lost
	case errors.Is(err, leasehold.ErrUnknown):
		return history.Unknown
	case errors.Is(err, leasehold.ErrHeld):
		return history.Held
	case ctx.Err() != nil:
		return history.Cancelled
	}
	return history.Unavailable
}

// Grants returns how often a lock has been granted.
func (l *Locks) Grants() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if r.What == history.Got {
			n++
		}
	}
	return n
}

// Await waits until the lock has been granted n more times.
func (l *Locks) Await(n int) {
	l.t.Helper()
	limit := time.After(patience)
	for range n {
		l.mu.Lock()
		granted := l.granted
		l.mu.Unlock()
		select {
		case <-granted:
		case <-limit:
			l.t.Fatalf("fewer than %d grants in %v", n, patience)
		}
	}
}

// Fault makes a fault. Its effects last for a TTL.
func (l *Locks) Fault(name string, do func()) {
	l.t.Helper()
	since := l.now()
	do()
	l.add(history.Record{At: l.now() + int64(l.ttl), Since: since, What: history.Fault, Note: name})
}

// Add adds a fault to the history.
func (l *Locks) Add(since time.Time, proc, name string) {
	l.add(history.Record{At: l.now(), Since: int64(since.Sub(l.began)) + 1, Proc: proc, What: history.Fault, Note: name})
}

// Judge ends the clients, and reports every promise that was broken.
func (l *Locks) Judge() *checker.Verdict {
	l.t.Helper()
	l.end()
	verdict := checker.Judge(l.rules, l.records)
	if len(verdict.Violations) > 0 {
		l.t.Error(verdict)
	}
	if verdict.Refusals == 0 {
		l.t.Errorf("no call was refused: %v", verdict)
	}
	l.t.Log(verdict)
	return verdict
}

// Fault disturbs a cluster, and returns when it is over.
type Fault struct {
	Name string
	Do   func(locks *Locks)
}

// Faults lets clients of the stores contend for a lock, and workers for records of the tables, while all
// faults happen one after the other, in rounds.
func Faults(t testing.TB, ttl time.Duration, stores []driver.Driver, tables []roomdriver.Table, rounds int, faults ...Fault) {
	t.Helper()
	records := StartChain(t, tables...)
	locks := Start(t, ttl, time.Minute, stores...)
	locks.Await(20)
	for range rounds {
		for _, f := range faults {
			locks.Fault(f.Name, func() { f.Do(locks) })
			locks.Await(20)
		}
	}
	locks.Judge()
	records.Judge()
}
