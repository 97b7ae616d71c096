// Package chaos runs many clients of a store under faults and records their
// observations, for package
// [github.com/leasehold-go/leasehold/internal/test/checker] to check.
//
// A [Crowd] is the clients of one process: contenders that take locks, write to
// the register that a lock protects, hold, and release. [Work] runs a process with
// a crowd. [Game.Play] runs a whole game: it starts the processes, stops and kills them,
// makes the faults of the store, and writes the file of a history.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Plan describes the behaviour of the contenders of a crowd.
type Plan struct {
	// Contenders is their number in the process.
	Contenders int
	// TTL is the TTL of their leases.
	TTL time.Duration
	// Hold bounds the time for which most leases are held. Some leases are held
	// much longer, over several renewals.
	Hold time.Duration
	// Pause is the mean time between two attempts of one contender.
	Pause time.Duration
	// Burst, if above 0, replaces Pause: all contenders begin an attempt at about
	// the same time, once in every Burst.
	Burst time.Duration
	// Keys is the number of keys for each kind of lock.
	Keys int
	// Epoch is the time after which a new key replaces a key.
	Epoch time.Duration
	// Prefix begins every key.
	Prefix string
	// Kinds are the kinds of lock. A kind that is listed twice is drawn twice as often.
	Kinds []Kind
	// Detached makes leases outlive the context of the wait. The end of that context
	// would release the lease while a mutex is held, and virtual time stands still
	// while a goroutine waits for a mutex.
	Detached bool
	// Faulty is the fraction of requests that get a fault in the driver.
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

// Kinds returns the kinds that a store can serve, for [Plan.Kinds].
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

// Crowd is the contenders of one process.
type Crowd struct {
	Client *leasehold.Client
	Proc   string
	Plan   Plan
	Sink   history.Sink
	Now    func() int64
	// Register writes to a resource that locks protect: it refuses a write with a token smaller
	// than an earlier one for the key. It is nil if grants carry no tokens.
	Register func(w Write, accepted *bool) error
	Seed     uint64
}

// Run contends until ctx ends, and returns when every lease has been released.
func (c *Crowd) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range c.Plan.Contenders {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(c.Seed, uint64(i)))
			for n := 0; timing.Sleep(ctx, c.rest(rnd)); n++ {
				c.attempt(ctx, rnd, fmt.Sprintf("%s.%d.%d", c.Proc, i, n))
			}
		})
	}
	wg.Wait()
}

// rest returns the time until the next attempt.
func (c *Crowd) rest(rnd *rand.Rand) time.Duration {
	if burst := c.Plan.Burst; burst > 0 {
		return burst - time.Duration(c.Now())%burst + time.Duration(rnd.Int64N(int64(2*c.Plan.TTL)))
	}
	return exponential(rnd, c.Plan.Pause)
}

// exponential returns a random time with the given mean, as between independent events.
func exponential(rnd *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(rnd.ExpFloat64() * float64(mean))
}

// attempt is one call of Lock or TryLock, with its outcome.
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
	if rnd.IntN(20) == 0 { // a timeout ends the wait or the lease
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

// enter takes the lock. The lease outlives ctx if the plan is Detached.
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

// plan draws the parameters of the attempt.
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

// lock takes the lock with the name of the attempt as the owner.
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

// hold keeps the lease for a while, and records whether it is live.
func (a *attempt) hold(ctx context.Context, lease *leasehold.Lease) {
	a.note(history.Record{At: a.back, What: history.Got, Lease: lease.ID(), Token: lease.Token(), Places: string(driver.PlacesOf(lease.Places())), Live: live(lease)})
	a.write(lease)
	end := a.Now() + int64(a.rest)
	for a.sighted(lease) && a.Now() < end && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-lease.Context().Done():
		case <-time.After(min(a.Plan.TTL/40, time.Duration(max(end-a.Now(), 0)))):
		}
	}
	a.write(lease) // also after a loss: the register must refuse the write
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

// sighted reports whether the lease is live, and records that. It reads the time
// before the check, so that the lease was live at the recorded time.
func (a *attempt) sighted(lease *leasehold.Lease) bool {
	now := a.Now()
	if !live(lease) {
		return false
	}
	a.note(history.Record{At: now, What: history.Live})
	return true
}

// write writes to the register, if the lock is exclusive.
func (a *attempt) write(lease *leasehold.Lease) {
	if a.Register == nil || a.ask.Mode != history.Exclusive {
		return
	}
	since, accepted := a.Now(), false
	if err := a.Register(Write{a.ask.Key, a.Proc, lease.Token()}, &accepted); err != nil {
		return // the process of the register has ended
	}
	now := a.Now()
	a.note(history.Record{At: now, What: history.Write, Since: since, Token: lease.Token(), Accepted: accepted, Live: live(lease)})
}

// outcome returns the class of an error.
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
