// Package clientgotest compares the election of the module above with that of client-go.
// It is a module of its own, so that no other module compiles client-go.
package clientgotest

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	theirs "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	ours "github.com/leasehold-go/leasehold/integrations/leaderelection"
	"github.com/leasehold-go/leasehold/leaseholdtest"
)

const lease = 15 * time.Second

// office is an election.
type office interface {
	// run campaigns as RunOrDie does.
	run(ctx context.Context, identity string, callbacks theirs.LeaderCallbacks)
	// down makes the store fail.
	down()
}

// calls are the calls of the callbacks of one candidate.
type calls struct {
	// Calls of OnStartedLeading and OnStoppedLeading, in their order.
	Calls []string
	// Leaders that OnNewLeader was called with. client-go calls it in a goroutine of its own.
	Leaders []string
}

type candidate struct {
	mu    sync.Mutex
	calls calls
	quit  context.CancelFunc
	done  chan struct{}
}

func campaign(t *testing.T, o office, identity string) *candidate {
	ctx, quit := context.WithCancel(t.Context())
	c := &candidate{quit: quit, done: make(chan struct{})}
	term := context.Background()
	callbacks := theirs.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			c.mu.Lock()
			term, c.calls.Calls = ctx, append(c.calls.Calls, "started")
			c.mu.Unlock()
			<-ctx.Done()
		},
		OnStoppedLeading: func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			call := "stopped, no leadership"
			if term != context.Background() {
				call = "stopped, the context went on"
			}
			if term.Err() != nil {
				call = "stopped after the end of the context"
			}
			c.calls.Calls = append(c.calls.Calls, call)
		},
		OnNewLeader: func(identity string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.calls.Leaders = append(c.calls.Leaders, identity)
		},
	}
	go func() {
		defer close(c.done)
		o.run(ctx, identity, callbacks)
	}()
	return c
}

// end waits until the campaign is over, and returns the calls of the callbacks.
func (c *candidate) end() calls {
	<-c.done
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// TestRunOrDie_CallsWhatThatOfClientGoCalls plays the same story with both elections.
func TestRunOrDie_CallsWhatThatOfClientGoCalls(t *testing.T) {
	stories := map[string]struct {
		play func(t *testing.T, o office) []calls
		want []calls
	}{
		"a leader resigns and the next one leads": {
			func(t *testing.T, o office) []calls {
				a := campaign(t, o, "a")
				time.Sleep(time.Minute)
				b := campaign(t, o, "b")
				time.Sleep(time.Minute)
				a.quit()
				first := a.end()
				time.Sleep(time.Minute)
				b.quit()
				return []calls{first, b.end()}
			},
			[]calls{
				{[]string{"started", "stopped after the end of the context"}, []string{"a"}},
				{[]string{"started", "stopped after the end of the context"}, []string{"a", "b"}},
			},
		},
		"the leadership is lost in an outage": {
			func(t *testing.T, o office) []calls {
				a := campaign(t, o, "a")
				time.Sleep(time.Minute)
				o.down()
				defer a.quit()
				return []calls{a.end()}
			},
			[]calls{{[]string{"started", "stopped after the end of the context"}, []string{"a"}}},
		},
		"a campaign is not won": {
			func(t *testing.T, o office) []calls {
				a := campaign(t, o, "a")
				time.Sleep(time.Minute)
				b := campaign(t, o, "b")
				time.Sleep(time.Minute)
				b.quit()
				loser := b.end()
				a.quit()
				a.end()
				return []calls{loser}
			},
			[]calls{{[]string{"stopped, no leadership"}, []string{"a"}}},
		},
	}
	for name, story := range stories {
		for whose, open := range map[string]func(*testing.T) office{"client-go": newTheirs, "leasehold": newOurs} {
			t.Run(name+"/"+whose, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if got := story.play(t, open(t)); !reflect.DeepEqual(got, story.want) {
						t.Errorf("calls\n%q, want\n%q", got, story.want)
					}
				})
			})
		}
	}
}

// ourOffice is the election of Leasehold. The callbacks of client-go's type convert.
type ourOffice struct{ store *leaseholdtest.Store }

func newOurs(t *testing.T) office {
	_, store := leaseholdtest.New(t)
	return &ourOffice{store}
}

func (o *ourOffice) down() { o.store.Down() }

func (o *ourOffice) run(ctx context.Context, identity string, callbacks theirs.LeaderCallbacks) {
	ours.RunOrDie(ctx, ours.LeaderElectionConfig{
		Client: o.store.Client(), Name: "controller", Identity: identity, LeaseDuration: lease,
		Callbacks: ours.LeaderCallbacks(callbacks),
	})
}

// theirOffice is the election of client-go over a record in memory.
type theirOffice struct {
	mu     sync.Mutex
	record *resourcelock.LeaderElectionRecord
	isDown bool
}

func newTheirs(*testing.T) office { return new(theirOffice) }

func (o *theirOffice) down() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isDown = true
}

func (o *theirOffice) run(ctx context.Context, identity string, callbacks theirs.LeaderCallbacks) {
	theirs.RunOrDie(ctx, theirs.LeaderElectionConfig{
		Lock: &recordLock{o, identity}, LeaseDuration: lease, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true, Callbacks: callbacks, Name: "controller",
	})
}

// recordLock is one candidate's access to the record.
type recordLock struct {
	*theirOffice
	identity string
}

var _ resourcelock.Interface = (*recordLock)(nil)

func (l *recordLock) Identity() string { return l.identity }

func (l *recordLock) Describe() string { return "controller" }

func (l *recordLock) RecordEvent(string) {}

func (l *recordLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.isDown:
		return nil, nil, errors.New("the store is away")
	case l.record == nil:
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "controller")
	}
	record := *l.record
	return &record, []byte(record.HolderIdentity + record.RenewTime.String()), nil
}

func (l *recordLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func (l *recordLock) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isDown {
		return errors.New("the store is away")
	}
	l.record = &r
	return nil
}
