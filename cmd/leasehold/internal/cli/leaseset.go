package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// leaseSet holds the leases of a run: one for NAME, and one for each --also. If one is lost,
// the whole set is lost, and the other leases are held until the command has ended.
type leaseSet struct {
	leases []*leasehold.Lease // in the order of acquisition
	main   *leasehold.Lease   // the lease of NAME, which events refer to

	abort   context.CancelCauseFunc // ends the wait for the next lock, and all leases
	unlinks []func() bool           // each disconnects the end of one lease from abort
}

func (s *leaseSet) add(l *leasehold.Lease, main bool) {
	s.leases = append(s.leases, l)
	if main {
		s.main = l
	}
	s.unlinks = append(s.unlinks, context.AfterFunc(l.Context(), func() { s.abort(context.Cause(l.Context())) }))
}

// unlink makes the leases independent of each other. It reports false if one was lost
// before.
func (s *leaseSet) unlink() bool {
	whole := true
	for _, stop := range s.unlinks {
		whole = stop() && whole
	}
	return whole
}

// cause returns why a lease is over, or nil while all are valid.
func (s *leaseSet) cause() error {
	for _, l := range s.leases {
		if l.Context().Err() == nil {
			continue
		}
		if l == s.main {
			return context.Cause(l.Context())
		}
		return fmt.Errorf("lock %q: %w", l.Key(), context.Cause(l.Context()))
	}
	return nil
}

// failed returns the loss of a lease that was taken already, or else err.
func (s *leaseSet) failed(err error) error {
	for _, l := range s.leases {
		if l.State() == leasehold.Lost {
			return fmt.Errorf("lock %q: %w", l.Key(), context.Cause(l.Context()))
		}
	}
	return err
}

// done returns a channel that is closed when a lease is over.
func (s *leaseSet) done() <-chan struct{} {
	first := make(chan struct{})
	over := sync.OnceFunc(func() { close(first) })
	for _, l := range s.leases {
		context.AfterFunc(l.Context(), over)
	}
	return first
}

func (s *leaseSet) deadline() time.Time {
	first := s.leases[0].Deadline()
	for _, l := range s.leases[1:] {
		if d := l.Deadline(); d.Before(first) {
			first = d
		}
	}
	return first
}

func (s *leaseSet) unconfirmed() bool {
	return slices.ContainsFunc(s.leases, func(l *leasehold.Lease) bool { return l.State() == leasehold.Unconfirmed })
}

// release releases all leases at once. ended is the loss that ended the command, or nil.
func (s *leaseSet) release(ended error) error {
	errs := make([]error, len(s.leases))
	var wg sync.WaitGroup
	for i, l := range s.leases {
		wg.Go(func() { errs[i] = releaseLease(l, ended) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// finalReleaseTimeout bounds the release of a lease that was lost, or is about to be. The
// store has probably been silent for some time, and the lease expires without a release.
const finalReleaseTimeout = 500 * time.Millisecond

// releaseLease releases one lease. If a loss ended the command, it waits for at most
// finalReleaseTimeout and returns that loss: the user waits for the message.
func releaseLease(l *leasehold.Lease, ended error) error {
	if ended == nil {
		return l.Release()
	}
	released := make(chan error, 1)
	go func() { released <- l.Release() }()
	select {
	case err := <-released:
		return err
	case <-time.After(finalReleaseTimeout):
		return ended
	}
}
