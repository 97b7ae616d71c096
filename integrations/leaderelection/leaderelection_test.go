package leaderelection_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/integrations/leaderelection"
	"github.com/leasehold-go/leasehold/leaseholdtest"
)

const name = "controller"

// candidate takes part in an election, and reports the calls of its callbacks.
type candidate struct {
	leads   chan context.Context
	stopped chan bool
	leaders chan string
	ended   chan error
	quit    context.CancelFunc
}

// run begins a campaign. work is the work of the leader.
func run(t *testing.T, client *leasehold.Client, identity string, work func(context.Context)) *candidate {
	t.Helper()
	ctx, quit := context.WithCancel(t.Context())
	c := &candidate{make(chan context.Context, 1), make(chan bool, 10), make(chan string, 10), make(chan error, 1), quit}
	config := leaderelection.LeaderElectionConfig{
		Client: client, Name: name, Identity: identity, LeaseDuration: 15 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				c.leads <- ctx
				if work != nil {
					work(ctx)
				}
			},
			OnStoppedLeading: func() { c.stopped <- true },
			OnNewLeader:      func(identity string) { c.leaders <- identity },
		},
	}
	go func() { c.ended <- leaderelection.Run(ctx, config) }()
	return c
}

// ends waits for the end of the campaign.
func (c *candidate) ends(t *testing.T, want error) {
	t.Helper()
	if err := <-c.ended; !errors.Is(err, want) {
		t.Errorf("ended with %v, want %v", err, want)
	}
}

func TestRun_LeadsUntilItsWorkHasReturnedAndThenTheNextLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		a := run(t, client, "a", func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(12 * time.Second)
		})
		<-a.leads
		b := run(t, store.Client(), "b", nil) // returns at once, as callbacks do that start controllers
		time.Sleep(time.Hour)
		if len(b.leads) != 0 || len(a.stopped) != 0 {
			t.Error("the leadership changed without a reason")
		}
		a.quit()
		<-a.stopped // at once: a program may exit here
		time.Sleep(10 * time.Second)
		if len(b.leads) != 0 {
			t.Error("two lead at once")
		}
		a.ends(t, nil)
		<-b.leads
		time.Sleep(time.Hour)
		if len(a.stopped) != 0 || len(b.stopped) != 0 {
			t.Errorf("OnStoppedLeading was called another %d times, and %d times by the next leader", len(a.stopped), len(b.stopped))
		}
		for _, want := range []string{"a", "b"} {
			if got := <-b.leaders; got != want {
				t.Errorf("the new leader is %q, want %q", got, want)
			}
		}
		b.quit()
		b.ends(t, nil)
	})
}

func TestRun_ReturnsWhenTheLeadershipIsLostInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		a := run(t, client, "a", func(ctx context.Context) { <-ctx.Done() })
		term := <-a.leads
		begin := time.Now()
		store.Down()
		a.ends(t, leasehold.ErrLost)
		if took := time.Since(begin); took > 20*time.Second || term.Err() == nil || len(a.stopped) != 1 {
			t.Errorf("after %v: context %v, stopped %d times", took, term.Err(), len(a.stopped))
		}
		again := run(t, client, "a", nil) // waits for the store
		time.Sleep(time.Hour)
		if len(again.ended) != 0 {
			t.Error("an outage ended the campaign")
		}
		store.Up()
		<-again.leads
		again.quit()
		again.ends(t, nil)
	})
}

func TestRun_TellsAtOnceThatItStoppedEvenIfTheWorkHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		hang := make(chan bool)
		a := run(t, client, "a", func(context.Context) { <-hang })
		<-a.leads
		store.Lose(name)
		<-a.stopped
		close(hang)
		a.ends(t, leasehold.ErrLost)
	})
}

func TestRun_EndsACampaignThatIsNotWon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		store.Hold(name)
		a := run(t, client, "a", nil)
		store.AwaitWaiters(name, 1)
		a.quit()
		a.ends(t, context.Canceled)
		if len(a.stopped) != 1 || len(a.leads) != 0 {
			t.Errorf("stopped %d times, led %d times", len(a.stopped), len(a.leads))
		}
		store.AwaitWaiters(name, 0)
	})
}

// OnStoppedLeading mostly ends the process, which would hide why the election is impossible.
func TestRunOrDie_PanicsIfTheElectionIsImpossible(t *testing.T) {
	client, store := leaseholdtest.New(t)
	closed := store.Client()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	callbacks := leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) { t.Error("it leads") },
		OnStoppedLeading: func() { t.Error("it stopped to lead") },
	}
	for what, row := range map[string]struct {
		config leaderelection.LeaderElectionConfig
		want   error
	}{
		"no client":    {leaderelection.LeaderElectionConfig{Name: name, Callbacks: callbacks}, leasehold.ErrInvalid},
		"no name":      {leaderelection.LeaderElectionConfig{Client: client, Callbacks: callbacks}, leasehold.ErrInvalid},
		"no callbacks": {leaderelection.LeaderElectionConfig{Client: client, Name: name}, leasehold.ErrInvalid},
		"a TTL of 1ns": {
			leaderelection.LeaderElectionConfig{Client: client, Name: name, Callbacks: callbacks, LeaseDuration: 1}, leasehold.ErrInvalid,
		},
		"a client that was closed": {leaderelection.LeaderElectionConfig{Client: closed, Name: name, Callbacks: callbacks}, leasehold.ErrClosed},
		"a store that refuses it":  {leaderelection.LeaderElectionConfig{Client: refusing(t), Name: name, Callbacks: callbacks}, driver.ErrPermanent},
	} {
		t.Run(what, func(t *testing.T) {
			if err := leaderelection.Run(t.Context(), row.config); !errors.Is(err, row.want) {
				t.Errorf("Run: %v, want %v", err, row.want)
			}
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, row.want) {
					t.Errorf("it panicked with %v, want %v", err, row.want)
				}
			}()
			leaderelection.RunOrDie(t.Context(), row.config)
		})
	}
}

// refusing returns a client of a store with another password.
func refusing(t *testing.T) *leasehold.Client {
	t.Helper()
	client, err := leasehold.New(refusal{memdriver.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

type refusal struct{ driver.Driver }

func (refusal) Acquire(context.Context, driver.Request) (driver.Reply, error) {
	return driver.Reply{}, fmt.Errorf("wrong password: %w", driver.ErrPermanent)
}

// client-go calls OnNewLeader in a goroutine of its own, so converted callbacks may block.
func TestRun_WaitsForNoOnNewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		store.Hold(name)
		ctx, quit := context.WithCancel(t.Context())
		told, hang, stopped, ended := make(chan bool, 1), make(chan bool), make(chan bool, 1), make(chan error, 1)
		go func() {
			ended <- leaderelection.Run(ctx, leaderelection.LeaderElectionConfig{Client: client, Name: name, Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {},
				OnStoppedLeading: func() { stopped <- true },
				OnNewLeader:      func(string) { told <- true; <-hang },
			}})
		}()
		<-told
		quit()
		synctest.Wait()
		if len(ended) != 1 || len(stopped) != 1 {
			t.Errorf("it has ended %d times, and reported %d ends", len(ended), len(stopped))
		}
		close(hang)
	})
}

// A panic of the leader's work is the caller's; the lease does not outlive it.
func TestRun_GivesTheLeadershipUpIfItsWorkPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		func() {
			defer func() {
				if got := recover(); got != "broken" {
					t.Errorf("recovered %v", got)
				}
			}()
			_ = leaderelection.Run(t.Context(), leaderelection.LeaderElectionConfig{Client: client, Name: name, Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { panic("broken") },
				OnStoppedLeading: func() {},
			}})
		}()
		store.AwaitHeld(name, false)
	})
}
