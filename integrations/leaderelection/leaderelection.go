// Package leaderelection stands in for k8s.io/client-go/tools/leaderelection: programs that
// lead by [RunOrDie] do so by a [leasehold.Election], inside a cluster and outside of one. It
// needs nothing of Kubernetes: [LeaderCallbacks] has the fields of client-go's type, so that a
// value of one is converted to the other.
package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
)

// LeaderElectionConfig says what is led, by whom and what is called.
type LeaderElectionConfig struct {
	// Client is where the election takes place.
	Client *leasehold.Client
	// Name is the key of the election: 1 to 512 bytes.
	Name string
	// Identity of this candidate, which others see: at most 4 KiB.
	Identity string
	// LeaseDuration is the time to live of the leader's lease; 0 leaves it to the client.
	// The leader renews it after a third, for as long as it lasts.
	LeaseDuration time.Duration
	// Callbacks are what is called. OnStartedLeading and OnStoppedLeading are needed.
	Callbacks LeaderCallbacks
	// Options are further ones of the lock.
	Options []leasehold.Option
}

// LeaderCallbacks are called in the course of an election.
type LeaderCallbacks struct {
	// OnStartedLeading is called when this candidate leads, with a context that ends with
	// the leadership. If it returns before that, the leadership goes on. It must return when
	// its context ends: nobody else leads before that, or before the lease is over.
	OnStartedLeading func(context.Context)
	// OnStoppedLeading is called once, when the leadership ends, even if OnStartedLeading
	// goes on: a program that cannot stop what it began exits here. It is called as well if
	// the context of Run ends before anything was led. It is not called if the election
	// cannot be held at all: Run then returns why, and RunOrDie panics with it.
	OnStoppedLeading func()
	// OnNewLeader is called with the identity of whoever leads, whenever that has changed:
	// within some second, by asking the store every second. It may be nil. Calls come one
	// after the other. Run does not wait for the last one, and begins none after its return.
	OnNewLeader func(identity string)
}

// errStopped ends a term, so that none follows.
var errStopped = errors.New("the leadership has ended")

// RunOrDie is [Run], and panics if the election cannot be held at all: because of an invalid
// configuration, or a store that refuses for good.
func RunOrDie(ctx context.Context, config LeaderElectionConfig) {
	if err := Run(ctx, config); err != nil && !errors.Is(err, leasehold.ErrLost) && ctx.Err() == nil {
		panic(err)
	}
}

// Run campaigns, leads once, and returns when the leadership has ended or ctx does. A
// store that is away ends no campaign. The error matches [leasehold.ErrLost] if the
// leadership was lost, and [leasehold.ErrInvalid] if the configuration is; it is nil if
// ctx ended while this candidate led, and the error of ctx if it ended before.
//
// When ctx ends, so does the context of OnStartedLeading. The lease is released when
// OnStartedLeading has returned. A function that does not return within LeaseDuration loses
// the lease, and the next candidate leads.
func Run(ctx context.Context, config LeaderElectionConfig) error {
	if err := config.check(); err != nil {
		return err
	}
	opts := slices.Clone(config.Options)
	if config.LeaseDuration != 0 {
		opts = append(opts, leasehold.WithTTL(config.LeaseDuration))
	}
	r := &run{
		callbacks: config.Callbacks,
		election:  config.Client.Election(config.Name, config.Identity, opts...),
		stopped:   sync.OnceFunc(config.Callbacks.OnStoppedLeading),
	}
	defer func() {
		if r.led.Load() || ctx.Err() != nil { // else nobody would see why there is nothing to lead
			r.stopped()
		}
	}()
	defer r.observe(ctx)()

	if err := r.election.Lead(ctx, r.lead); !errors.Is(err, errStopped) || errors.Is(err, leasehold.ErrLost) {
		return err
	}
	return nil
}

func (c LeaderElectionConfig) check() error {
	switch {
	case c.Client == nil:
		return fmt.Errorf("leaderelection: client is nil: %w", leasehold.ErrInvalid)
	case c.Callbacks.OnStartedLeading == nil:
		return fmt.Errorf("leaderelection: OnStartedLeading is nil: %w", leasehold.ErrInvalid)
	case c.Callbacks.OnStoppedLeading == nil:
		return fmt.Errorf("leaderelection: OnStoppedLeading is nil: %w", leasehold.ErrInvalid)
	}
	return nil
}

// run is one call of Run.
type run struct {
	callbacks LeaderCallbacks
	election  *leasehold.Election
	stopped   func() // OnStoppedLeading, once
	led       atomic.Bool
}

// lead is the term of office.
func (r *run) lead(ctx context.Context, _ *leasehold.Lease) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.led.Store(true)
	defer context.AfterFunc(ctx, r.stopped)()
	r.callbacks.OnStartedLeading(ctx)
	<-ctx.Done()
	return errStopped
}

// observe calls OnNewLeader until the function that it returns is called, which waits for
// no call that is under way.
func (r *run) observe(ctx context.Context) (stop func()) {
	if r.callbacks.OnNewLeader == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var calling sync.Mutex
	call := func(identity string) {
		calling.Lock()
		defer calling.Unlock()
		if ctx.Err() == nil {
			r.callbacks.OnNewLeader(identity)
		}
	}
	go func() {
		defer close(done)
		last := "" // id of the last leader's lease
		for leader, err := range r.election.Observe(ctx) {
			if err == nil && leader.ID != "" && leader.ID != last {
				last = leader.ID
				call(leader.Value)
			}
		}
	}()
	return func() {
		cancel()
		if calling.TryLock() {
			calling.Unlock()
			<-done
		}
	}
}
