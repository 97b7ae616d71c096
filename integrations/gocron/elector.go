package leaseholdgocron

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leasehold-go/leasehold"

	"github.com/go-co-op/gocron/v2"
)

// ErrNotLeader is the error of [Elector.IsLeader] while this scheduler does not lead.
var ErrNotLeader = errors.New("leaseholdgocron: this scheduler does not lead")

// Elector elects the scheduler that runs all jobs. Pass it to [gocron.WithDistributedElector].
// It is safe for concurrent use.
type Elector struct {
	election *leasehold.Election
	done     chan struct{} // closed when the campaign has ended

	mu     sync.Mutex
	quit   context.CancelFunc // ends the campaign, between terms
	closed bool
	term   context.Context // of the present term; otherwise nil
	lease  *leasehold.Lease
	tasks  *sync.WaitGroup // of the present term
	err    error           // of the campaign, once it has ended
}

// NewElector returns a candidate in the election of key, which campaigns from now on until
// Close. It publishes value; see [leasehold.Client.Election] for key, value and options.
func NewElector(client *leasehold.Client, key, value string, opts ...leasehold.Option) *Elector {
	ctx, quit := context.WithCancel(context.Background())
	e := &Elector{election: client.Election(key, value, opts...), done: make(chan struct{}), quit: quit}
	go func() {
		defer close(e.done)
		err := e.election.Lead(ctx, e.serve)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.err = err
	}()
	return e
}

// serve runs one term. It returns when the leadership has ended and all tasks of the term have
// returned.
func (e *Elector) serve(ctx context.Context, lease *leasehold.Lease) error {
	tasks := new(sync.WaitGroup)
	if !e.enter(ctx, lease, tasks) {
		return nil
	}
	<-ctx.Done()
	e.mu.Lock()
	e.term, e.lease, e.tasks = nil, nil, nil
	e.mu.Unlock()
	tasks.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed && !lease.State().Live() { // the lease was lost before Close could resign
		e.quit()
	}
	return nil
}

func (e *Elector) enter(ctx context.Context, lease *leasehold.Lease, tasks *sync.WaitGroup) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.term, e.lease, e.tasks = ctx, lease, tasks
	return true
}

// IsLeader implements [gocron.Elector]. It sends no request: it compares the clock with the
// leader's lease. The error matches [ErrNotLeader], and also the error that has ended the
// campaign, if there is one, such as a wrong password of the store.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.term != nil && e.term.Err() == nil:
		return nil
	case e.err != nil:
		return fmt.Errorf("%w: %w", ErrNotLeader, e.err)
	}
	return ErrNotLeader
}

// Task returns a task for a job of the leader. Its work gets the leader's lease, and a context
// that ends with the job or the leadership and has the values of both. Close passes the
// leadership on when the work has returned. A run that starts without the leadership fails with
// [ErrNotLeader], and a run that loses it fails with [leasehold.ErrLost].
func (e *Elector) Task(work func(ctx context.Context, lease *leasehold.Lease) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		e.mu.Lock()
		term, lease, tasks := e.term, e.lease, e.tasks
		if term == nil || term.Err() != nil {
			e.mu.Unlock()
			return ErrNotLeader
		}
		tasks.Add(1)
		e.mu.Unlock()
		defer tasks.Done()
		return run(ctx, term, lease, work)
	})
}

// Close ends the campaign and resigns. It ends the contexts of the tasks of [Elector.Task] and
// waits for them. Shut the scheduler down before Close, which does not wait for other tasks. The
// error is that of a campaign that has ended before, or the error of the release.
func (e *Elector) Close() error {
	e.mu.Lock()
	switch {
	case e.closed: // before
	case e.term == nil:
		e.quit()
	default:
		e.election.Resign()
	}
	e.closed = true
	e.mu.Unlock()
	<-e.done
	e.quit()
	if errors.Is(e.err, context.Canceled) || errors.Is(e.err, leasehold.ErrContextEnded) {
		return nil
	}
	return e.err
}
