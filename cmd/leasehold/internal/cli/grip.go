package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// grip is the leases of a run: that of NAME, and those of --also. The loss of
// one is the loss of all. Unlike a lease of [leasehold.All] it then gives nothing
// back by itself: what it still holds is held until the command has ended.
type grip struct {
	leases []*leasehold.Lease // in the order in which they were taken
	main   *leasehold.Lease   // that of NAME, of which is told what happens

	abort context.CancelCauseFunc // ends the wait for the rest, and all leases
	stops []func() bool           // disconnect a lease's end from abort
}

func (g *grip) add(l *leasehold.Lease, main bool) {
	g.leases = append(g.leases, l)
	if main {
		g.main = l
	}
	g.stops = append(g.stops, context.AfterFunc(l.Context(), func() { g.abort(context.Cause(l.Context())) }))
}

// settle makes the leases independent of each other; false means that one has
// been lost before.
func (g *grip) settle() bool {
	whole := true
	for _, stop := range g.stops {
		whole = stop() && whole
	}
	return whole
}

// cause is why a lease is over, nil while all are valid.
func (g *grip) cause() error {
	for _, l := range g.leases {
		if l.Context().Err() == nil {
			continue
		}
		if l == g.main {
			return context.Cause(l.Context())
		}
		return fmt.Errorf("lock %q: %w", l.Key(), context.Cause(l.Context()))
	}
	return nil
}

// failed is why not all locks were taken: because of err, unless one that was
// taken has been lost.
func (g *grip) failed(err error) error {
	for _, l := range g.leases {
		if l.State() == leasehold.Lost {
			return fmt.Errorf("lock %q: %w", l.Key(), context.Cause(l.Context()))
		}
	}
	return err
}

// done is closed when a lease is over.
func (g *grip) done() <-chan struct{} {
	if len(g.leases) == 1 {
		return g.main.Context().Done()
	}
	first := make(chan struct{})
	over := sync.OnceFunc(func() { close(first) })
	for _, l := range g.leases {
		context.AfterFunc(l.Context(), over)
	}
	return first
}

func (g *grip) deadline() time.Time {
	first := g.leases[0].Deadline()
	for _, l := range g.leases[1:] {
		if d := l.Deadline(); d.Before(first) {
			first = d
		}
	}
	return first
}

func (g *grip) unconfirmed() bool {
	for _, l := range g.leases {
		if l.State() == leasehold.Unconfirmed {
			return true
		}
	}
	return false
}

// release gives back what is held, at once. ended is why the command was ended,
// if it was because of a lease.
func (g *grip) release(ended error) error {
	errs := make([]error, len(g.leases))
	var wg sync.WaitGroup
	for i, l := range g.leases {
		wg.Go(func() { errs[i] = giveBack(l, ended) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// lastWord is how long a store is asked to take a lease back that was lost, or is
// about to be. It has probably been silent for some time, and the lease ends by
// itself; one that answers does so sooner.
const lastWord = 500 * time.Millisecond

// giveBack gives one lease back. ended is why the command was ended, if it was
// because of a lease: its owner waits for that to be told, and not for a store
// that does not answer.
func giveBack(l *leasehold.Lease, ended error) error {
	if ended == nil {
		return l.Release()
	}
	released := make(chan error, 1)
	go func() { released <- l.Release() }()
	select {
	case err := <-released:
		return err
	case <-time.After(lastWord):
		return ended
	}
}
