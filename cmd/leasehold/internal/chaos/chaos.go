// Package chaos runs many clients of a store under faults and records what they
// see, for package
// [github.com/leasehold-go/leasehold/internal/test/checker] to judge.
//
// A [Crowd] is the clients of one process: contenders that take locks, write to
// the register that a lock protects, hold, and release. [Work] is a process with
// a crowd, [Play] the whole: it starts the processes, stops and kills them, does
// to the store what it is told to, and leaves the file of a history.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/history"
)

// Plan says what the contenders of a crowd do.
type Plan struct {
	// Contenders is how many there are in the process.
	Contenders int
	// TTL is that of their leases.
	TTL time.Duration
	// Hold is how long a lease is held at most, mostly. Some are held much
	// longer, over several renewals.
	Hold time.Duration
	// Pause is the mean time between two attempts of one contender.
	Pause time.Duration
	// Burst, if above 0, has all contenders come at the same times, so far
	// apart, instead.
	Burst time.Duration
	// Keys is how many keys there are of each kind of lock.
	Keys int
	// Epoch is how long a key is used before another one takes its place.
	Epoch time.Duration
	// Prefix begins every key.
	Prefix string
	// Kinds are the kinds of lock, as often as they are to be drawn.
	Kinds []Kind
	// Detached has leases outlive the context under which was waited. A lease
	// that its context ends is released under a lock, which virtual time does
	// not outwait.
	Detached bool
	// Faulty is the part of requests that suffer a fault in the driver.
	Faulty float64
}

// Key returns the n-th key of a kind at the time now.
func (p *Plan) Key(kind Kind, n int, now int64) string {
	return fmt.Sprintf("%s%s/%d/%d", p.Prefix, kind, n, now/int64(p.Epoch))
}

// Kind is a kind of lock.
type Kind string

// The kinds.
const (
	Mutex     Kind = "mutex"
	RW        Kind = "rw"
	Semaphore Kind = "semaphore"
)

// places is the limit of every semaphore.
const places = 3

// Kinds returns the kinds that a store can serve, as often as they are drawn.
func Kinds(d driver.Driver) []Kind {
	kinds := []Kind{Mutex, Mutex, Mutex}
	if driver.Supports(d, driver.Request{Mode: driver.Shared}) == nil {
		kinds = append(kinds, RW)
	}
	if driver.Supports(d, driver.Request{Mode: driver.Shared, Limit: places, Weight: 2}) == nil {
		kinds = append(kinds, Semaphore)
	}
	return kinds
}

// Register is what a lock protects: it refuses a write with a token smaller
// than one that it has seen for the key.
type Register interface {
	Write(key, who string, token int64) (accepted bool, err error)
}

// Crowd is the contenders of one process.
type Crowd struct {
	Client   *leasehold.Client
	Proc     string
	Plan     Plan
	Sink     history.Sink
	Now      func() int64
	Register Register // nil if grants carry no tokens
	Seed     uint64
}

// Run contends until ctx ends, and returns when every lease has been given back.
func (c *Crowd) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range c.Plan.Contenders {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(c.Seed, uint64(i)))
			for n := 0; pause(ctx, c.rest(rnd)); n++ {
				c.attempt(ctx, rnd, fmt.Sprintf("%s.%d.%d", c.Proc, i, n))
			}
		})
	}
	wg.Wait()
}

// rest is the time until the next attempt.
func (c *Crowd) rest(rnd *rand.Rand) time.Duration {
	if burst := c.Plan.Burst; burst > 0 {
		return burst - time.Duration(c.Now())%burst + time.Duration(rnd.Int64N(int64(2*c.Plan.TTL)))
	}
	return exponential(rnd, c.Plan.Pause)
}

// exponential is a random time with the given mean, as between events that know
// nothing of one another.
func exponential(rnd *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(rnd.ExpFloat64() * float64(mean))
}

// pause reports whether it slept for d; false means that ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// attempt is one call of Lock or TryLock, and what comes of it.
type attempt struct {
	*Crowd
	rnd  *rand.Rand
	name string
	ask  history.Record
	kind Kind
	rest time.Duration // how long the lease is held
	back int64         // when the call returned
}

func (c *Crowd) attempt(ctx context.Context, rnd *rand.Rand, name string) {
	a := &attempt{Crowd: c, rnd: rnd, name: name}
	a.plan()
	if rnd.IntN(20) == 0 { // somebody loses patience, waiting or holding
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rnd.Int64N(int64(2*c.Plan.TTL))))
		defer cancel()
	}
	lease, err := a.enter(ctx)
	if err != nil {
		a.refused(err)
		return
	}
	a.hold(ctx, lease)
}

// enter asks, and has the lease outlive ctx if the plan says so.
func (a *attempt) enter(ctx context.Context) (*leasehold.Lease, error) {
	if !a.Plan.Detached {
		lease, err := a.lock(ctx)
		a.back = a.Now()
		return lease, err
	}
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	lease, err := a.lock(waiting)
	a.back = a.Now()
	stop()
	return lease, err
}

// plan draws what is asked for.
func (a *attempt) plan() {
	p, rnd := &a.Plan, a.rnd
	a.kind = p.Kinds[rnd.IntN(len(p.Kinds))]
	a.ask = history.Record{
		What: history.Ask, Mode: history.Exclusive, TTL: int64(p.TTL), Undo: int64(2 * p.TTL),
		Key: p.Key(a.kind, rnd.IntN(p.Keys), a.Now()),
	}
	switch a.kind {
	case RW:
		if rnd.IntN(3) > 0 {
			a.ask.Mode = history.Shared
		}
	case Semaphore:
		a.ask.Mode, a.ask.Limit, a.ask.Weight = history.Shared, places, 1+rnd.IntN(2)
	}
	switch rnd.IntN(10) {
	case 0, 1:
	case 2, 3, 4:
		a.ask.Wait = int64(p.TTL)
	default:
		a.ask.Wait = int64(15 * p.TTL)
	}
	switch n := rnd.IntN(40); {
	case n < 36:
		a.rest = time.Duration(rnd.Int64N(int64(p.Hold)))
	case n < 39:
		a.rest = time.Duration(rnd.Int64N(int64(p.TTL)))
	default:
		a.rest = p.TTL + time.Duration(rnd.Int64N(int64(2*p.TTL)))
	}
}

// note adds a record of this attempt.
func (a *attempt) note(r history.Record) {
	r.Proc, r.Attempt = a.Proc, a.name
	if r.At == 0 {
		r.At = a.Now()
	}
	a.Sink.Add(r)
}

// lock asks, under the attempt's own name.
func (a *attempt) lock(ctx context.Context) (*leasehold.Lease, error) {
	opts := []leasehold.Option{
		leasehold.WithName(a.name), leasehold.WithTTL(a.Plan.TTL), leasehold.WithMaxWait(time.Duration(a.ask.Wait)),
		leasehold.WithReleaseTimeout(time.Duration(a.ask.Undo)),
	}
	queued := false
	ctx = leasehold.ObserveWait(ctx, func(e leasehold.WaitEvent) {
		if !queued && e.Position > 0 {
			queued = true
			a.note(history.Record{What: history.Queued, Position: e.Position})
		}
	})
	a.note(a.ask)
	switch {
	case a.kind == Semaphore:
		return a.Client.Semaphore(a.ask.Key, places, opts...).LockN(ctx, a.ask.Weight)
	case a.kind == RW && a.ask.Mode == history.Shared:
		return a.Client.RWMutex(a.ask.Key, opts...).RLock(ctx)
	case a.kind == RW:
		return a.Client.RWMutex(a.ask.Key, opts...).Lock(ctx)
	case a.ask.Wait == 0:
		return a.Client.Mutex(a.ask.Key, opts...).TryLock(ctx)
	}
	return a.Client.Mutex(a.ask.Key, opts...).Lock(ctx)
}

func (a *attempt) refused(err error) {
	r := history.Record{What: history.None, Outcome: outcome(err), Note: err.Error()}
	var held *leasehold.HeldError
	if errors.As(err, &held) {
		r.Holder, r.Note = held.Owner, ""
	}
	a.note(r)
}

// hold believes in the lease for a while.
func (a *attempt) hold(ctx context.Context, lease *leasehold.Lease) {
	a.note(history.Record{At: a.back, What: history.Got, Lease: lease.ID(), Token: lease.Token(), Live: live(lease)})
	a.write(lease)
	end := a.Now() + int64(a.rest)
	for a.sighted(lease) && a.Now() < end && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-lease.Context().Done():
		case <-time.After(min(a.Plan.TTL/40, time.Duration(max(end-a.Now(), 0)))):
		}
	}
	a.write(lease) // also when it is lost: the register is there to refuse it
	if !a.sighted(lease) {
		cause := context.Cause(lease.Context())
		a.note(history.Record{What: history.End, Outcome: outcome(cause), Note: cause.Error()})
	}
	a.note(history.Record{What: history.Release})
	err := lease.Release()
	r := history.Record{What: history.Released, Outcome: outcome(err)}
	if err != nil {
		r.Note = err.Error()
	}
	a.note(r)
}

func live(lease *leasehold.Lease) bool { return lease.Context().Err() == nil }

// sighted looks at the lease and notes that it was live. The time is read
// before the look, so that what is seen was true then.
func (a *attempt) sighted(lease *leasehold.Lease) bool {
	now := a.Now()
	if !live(lease) {
		return false
	}
	a.note(history.Record{At: now, What: history.Live})
	return true
}

// write writes to what the lock protects, if one holder at a time may.
func (a *attempt) write(lease *leasehold.Lease) {
	if a.Register == nil || a.ask.Mode != history.Exclusive {
		return
	}
	since := a.Now()
	accepted, err := a.Register.Write(a.ask.Key, a.Proc, lease.Token())
	if err != nil {
		return // whoever runs the register has gone
	}
	now := a.Now()
	a.note(history.Record{At: now, What: history.Write, Since: since, Token: lease.Token(), Accepted: accepted, Live: live(lease)})
}

// outcome sorts what calls return.
func outcome(err error) string {
	switch {
	case err == nil, errors.Is(err, leasehold.ErrReleased):
		return history.OK
	case errors.Is(err, leasehold.ErrContextEnded):
		return history.Cancelled
	case errors.Is(err, leasehold.ErrHeld):
		return history.Held
	case errors.Is(err, leasehold.ErrLost):
		return history.Lost
	case errors.Is(err, leasehold.ErrUnknown):
		return history.Unknown
	case errors.Is(err, leasehold.ErrUnavailable), errors.Is(err, leasehold.ErrNoQuorum), errors.Is(err, leasehold.ErrNotReplicated):
		return history.Unavailable
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, leasehold.ErrClosed):
		return history.Cancelled
	}
	return history.Failed
}

// goroutines returns the stacks of the goroutines of this program that are not
// among the first n, in short; empty if there are none.
func goroutines(stacks []byte, n int) string {
	all := strings.Split(strings.TrimSpace(string(stacks)), "\n\n")
	if len(all) <= n {
		return ""
	}
	return fmt.Sprintf("%d instead of %d:\n%s", len(all), n, strings.Join(all, "\n\n"))
}
