// Package leaderelection replaces k8s.io/client-go/tools/leaderelection: programs that use
// [RunOrDie] lead by a [leasehold.Election], inside and outside of a cluster. It does not depend
// on Kubernetes: [LeaderCallbacks] has the fields of client-go's type, so that values can be
// converted.
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

// LeaderElectionConfig configures an election and its callbacks.
type LeaderElectionConfig struct {
	// Client is the client of the store of the election.
	Client *leasehold.Client
	// Name is the key of the election: 1 to 512 bytes.
	Name string
	// Identity of this candidate, visible to all candidates: at most 4 KiB.
	Identity string
	// LeaseDuration is the time to live of the leader's lease; 0 leaves it to the client.
	// The leader renews it after a third, for as long as it lasts.
	LeaseDuration time.Duration
	// Callbacks are the functions to call. OnStartedLeading and OnStoppedLeading are required.
	Callbacks LeaderCallbacks
	// Options are further options of the lock.
	Options []leasehold.Option
}

// LeaderCallbacks are called in the course of an election.
type LeaderCallbacks struct {
	// OnStartedLeading is called when this candidate leads, with a context that ends with
	// the leadership. If it returns before that, the leadership goes on. It must return when
	// its context ends. The next candidate leads after that, or after the lease has expired.
	OnStartedLeading func(context.Context)
	// OnStoppedLeading is called once, when the leadership ends, even if OnStartedLeading
	// goes on: a program that cannot stop its work exits here. It is also called if the context
	// of Run ends before this candidate has led. It is not called if the election cannot take
	// place: Run then returns the reason, and RunOrDie panics with it.
	OnStoppedLeading func()
	// OnNewLeader is called with the identity of each new leader, within about a second, since
	// Run asks the store every second. It may be nil. Calls do not overlap. Run does not wait
	// for the last call, and starts no call after its return.
	OnNewLeader func(identity string)
}

// errStopped ends a term without a further campaign.
var errStopped = errors.New("the leadership has ended")

// RunOrDie is [Run], and panics if the election cannot take place because of an invalid
// configuration or a permanent error of the store.
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
		if r.led.Load() || ctx.Err() != nil { // otherwise the error is the only sign of a failure
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

// run is the state of one call of Run.
type run struct {
	callbacks LeaderCallbacks
	election  *leasehold.Election
	stopped   func() // OnStoppedLeading, once
	led       atomic.Bool
}

// lead runs the term of this candidate.
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

// observe calls OnNewLeader until its result is called, which does not wait for a call that is
// under way.
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
