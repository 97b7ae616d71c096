package leaseholdgocron_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/leasehold-go/leasehold"
	leaseholdgocron "github.com/leasehold-go/leasehold/integrations/gocron"
	"github.com/leasehold-go/leasehold/leaseholdtest"
)

// start runs the task every d in a scheduler, and shuts it down at the end of the test.
func start(t *testing.T, d time.Duration, task gocron.Task, option gocron.SchedulerOption, opts ...gocron.JobOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	if _, err := s.NewJob(gocron.DurationJob(d), task, append(opts, gocron.WithName("nightly"))...); err != nil {
		t.Fatal(err)
	}
	s.Start()
	return s
}

// failures returns an option that sends the errors of failed runs to the channel.
func failures(to chan error) gocron.JobOption {
	return gocron.WithEventListeners(gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { to <- err }))
}

func count(n *atomic.Int64) gocron.Task { return gocron.NewTask(func() { n.Add(1) }) }

// Hosts with different clocks start the same run at slightly different times. The job takes
// no time at all.
func TestLocker_RunsEachTickOnceOnHostsWhoseClocksDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		var runs atomic.Int64
		for range 3 {
			start(t, time.Minute, count(&runs), gocron.WithDistributedLocker(leaseholdgocron.NewLocker(client)))
			client = store.Client()
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(10*time.Minute + time.Second)
		if n := runs.Load(); n != 10 {
			t.Errorf("%d runs in ten minutes, on three hosts, want 10", n)
		}
	})
}

// A shutdown ends the context of a job at once, but the job may go on for a while.
func TestLocker_KeepsTheLockUntilTheJobHasReturnedAfterAShutdown(t *testing.T) {
	client, store := leaseholdtest.New(t)
	began, told := make(chan bool), make(chan bool, 1)
	slow := gocron.NewTask(func(ctx context.Context) {
		began <- true
		<-ctx.Done()
		time.Sleep(300 * time.Millisecond) // the time in which a lease that follows ctx is given back
		told <- store.Held("nightly")
	})
	s := start(t, time.Second, slow, gocron.WithDistributedLocker(leaseholdgocron.NewLocker(client)))
	<-began
	if err := s.Shutdown(); err != nil {
		t.Error(err)
	}
	if !<-told {
		t.Error("the lock was free before the job had returned")
	}
	store.AwaitHeld("nightly", false)
}

func TestLocker_SaysToTheTaskThatItsLockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		locker := leaseholdgocron.NewLocker(client)
		began, failed := make(chan int64, 100), make(chan error, 1)
		task := locker.Task("nightly", func(ctx context.Context, lease *leasehold.Lease) error {
			began <- lease.Token()
			<-ctx.Done()
			return nil // it stops without an error
		})
		start(t, time.Minute, task, gocron.WithDistributedLocker(locker), failures(failed))
		if token := <-began; token == 0 {
			t.Error("the work has no token")
		}
		if time.Sleep(time.Hour + time.Second); len(began) != 0 {
			t.Error("another run began next to it: the lease was not renewed")
		}
		store.Lose("nightly")
		if err := <-failed; !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("the run failed by %v, want ErrLost", err)
		}
	})
}

// The context of a job has the values and the deadline of gocron.WithContext: a trace, for
// instance, and a time limit.
func TestTask_KeepsTheValuesAndTheDeadlineOfTheJobsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		locker, elector := leaseholdgocron.NewLocker(client), elect(t, client, "a")
		store.AwaitHeld("scheduler", true)
		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "trace"), time.Hour)
		defer cancel()
		want, _ := ctx.Deadline()
		ran := make(chan bool)
		work := func(ctx context.Context, lease *leasehold.Lease) error {
			if got := ctx.Value(key{}); got != "trace" {
				t.Errorf("under the lease of %q: value %v", lease.Key(), got)
			}
			if got, ok := ctx.Deadline(); !ok || !got.Equal(want) {
				t.Errorf("under the lease of %q: deadline %v, %t, want %v", lease.Key(), got, ok, want)
			}
			if got, ok := leasehold.FromContext(ctx); !ok || got.ID() != lease.ID() {
				t.Errorf("under the lease of %q: the context has the lease %v", lease.Key(), got)
			}
			ran <- true
			return nil
		}
		start(t, time.Minute, locker.Task("nightly", work), gocron.WithDistributedLocker(locker), gocron.WithContext(ctx))
		start(t, time.Minute, elector.Task(work), gocron.WithDistributedElector(elector), gocron.WithContext(ctx))
		<-ran
		<-ran
	})
}

func TestLocker_SkipsRunsWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		var runs atomic.Int64
		skipped := make(chan error, 100)
		start(t, time.Minute, count(&runs), gocron.WithDistributedLocker(leaseholdgocron.NewLocker(client)),
			gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { skipped <- err })))
		store.Down()
		if err := <-skipped; !errors.Is(err, leasehold.ErrUnavailable) || errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("the run was skipped by %v, want ErrUnavailable", err)
		}
		store.Freeze()
		if err := <-skipped; !errors.Is(err, leasehold.ErrUnknown) || errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("the run was skipped by %v, want ErrUnknown", err)
		}
		if n := runs.Load(); n != 0 {
			t.Errorf("%d runs without a lock", n)
		}
		store.Up()
		time.Sleep(2 * time.Minute)
		if runs.Load() == 0 {
			t.Error("no run after the outage")
		}
	})
}

func TestLocker_GivesTheLockBackAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		locker := leaseholdgocron.NewLocker(client)
		panicked := make(chan any, 1)
		task := locker.Task("nightly", func(context.Context, *leasehold.Lease) error { panic("at once") })
		start(t, time.Minute, task, gocron.WithDistributedLocker(locker),
			gocron.WithEventListeners(gocron.AfterJobRunsWithPanic(func(_ uuid.UUID, _ string, v any) { panicked <- v })))
		<-panicked
		store.AwaitHeld("nightly", false)
		if lease := locker.Lease("nightly"); lease != nil {
			t.Errorf("the locker still has a lease, %v", lease.State())
		}
	})
}

func TestLocker_LeavesNothingOfARequestWhoseContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		store.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if _, err := leaseholdgocron.NewLocker(client).Lock(ctx, "nightly"); err == nil {
			t.Error("a lock of a store that does not answer")
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("asked for %v, beyond the context", took)
		}
		store.Up()
		store.AwaitHeld("nightly", false)
	})
}

func TestTask_RefusesToRunWithoutItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := leaseholdtest.New(t)
		locker := leaseholdgocron.NewLocker(client)
		failed := make(chan error, 1)
		task := locker.Task("another", func(context.Context, *leasehold.Lease) error { return nil })
		start(t, time.Minute, task, gocron.WithDistributedLocker(locker), failures(failed))
		if err := <-failed; !errors.Is(err, leasehold.ErrNotHeld) {
			t.Errorf("the run failed by %v, want ErrNotHeld", err)
		}
	})
}

// elect returns an elector that is closed at the end of the test.
func elect(t *testing.T, client *leasehold.Client, value string) *leaseholdgocron.Elector {
	t.Helper()
	e := leaseholdgocron.NewElector(client, "scheduler", value)
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func leads(t *testing.T, e *leaseholdgocron.Elector, want bool, when string) {
	t.Helper()
	if err := e.IsLeader(t.Context()); want && err != nil || !want && !errors.Is(err, leaseholdgocron.ErrNotLeader) {
		t.Errorf("%s: it leads with %v, want %t", when, err, want)
	}
}

func TestElector_RunsJobsOfOneSchedulerAndThenOfTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		first := elect(t, client, "a")
		store.AwaitHeld("scheduler", true)
		second := elect(t, store.Client(), "b")
		store.AwaitWaiters("scheduler", 1)
		var ofFirst, ofSecond atomic.Int64
		start(t, time.Minute, count(&ofFirst), gocron.WithDistributedElector(first))
		start(t, time.Minute, count(&ofSecond), gocron.WithDistributedElector(second))
		time.Sleep(10*time.Minute + time.Second)
		if a, b := ofFirst.Load(), ofSecond.Load(); a != 10 || b != 0 {
			t.Errorf("%d and %d runs, want 10 and 0", a, b)
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Minute)
		if a, b := ofFirst.Load(), ofSecond.Load(); a != 10 || b != 10 {
			t.Errorf("%d and %d runs, want 10 and 10", a, b)
		}
	})
}

func TestElector_StopsToLeadInAnOutageAndLeadsAgainAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		e := elect(t, client, "a")
		store.AwaitHeld("scheduler", true)
		synctest.Wait()
		leads(t, e, true, "at the start")
		store.Down()
		time.Sleep(10 * time.Second) // the lease has 20 s at least
		leads(t, e, true, "in a short outage")
		time.Sleep(time.Hour)
		leads(t, e, false, "in a long outage")
		store.Up()
		time.Sleep(time.Minute)
		leads(t, e, true, "after the outage")
	})
}

func TestElector_WaitsForItsTasksBeforeAnotherLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		e := elect(t, client, "a")
		store.AwaitHeld("scheduler", true)
		next := elect(t, store.Client(), "b")
		began, done := make(chan bool), make(chan bool, 1)
		start(t, time.Minute, e.Task(func(ctx context.Context, _ *leasehold.Lease) error {
			began <- true
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			leads(t, next, false, "before the work of the first has ended")
			done <- true
			return nil
		}), gocron.WithDistributedElector(e))
		<-began
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		<-done
		time.Sleep(time.Second)
		leads(t, next, true, "after the first")
	})
}

func TestElector_CloseEndsACampaignThatIsNotWon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		store.Hold("scheduler")
		e := elect(t, client, "a")
		store.AwaitWaiters("scheduler", 1)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		store.AwaitWaiters("scheduler", 0)
		leads(t, e, false, "after its end")
	})
}

// A loss and Close meet: the elector must not wait for the term of another leader.
func TestElector_CloseEndsTheCampaignThatFollowsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		for range 20 {
			e := elect(t, client, "a")
			store.AwaitHeld("scheduler", true)
			next := elect(t, store.Client(), "b")
			store.AwaitWaiters("scheduler", 1)
			store.Lose("scheduler")
			if err := e.Close(); err != nil && !errors.Is(err, leasehold.ErrLost) {
				t.Error(err)
			}
			if err := e.Close(); err != nil && !errors.Is(err, leasehold.ErrLost) {
				t.Errorf("again: %v", err)
			}
			if err := next.Close(); err != nil {
				t.Error(err)
			}
			store.AwaitHeld("scheduler", false)
		}
	})
}

func TestElector_SaysWhatIsWrongWithItsKey(t *testing.T) {
	client, _ := leaseholdtest.New(t)
	e := leaseholdgocron.NewElector(client, "", "a")
	if err := e.Close(); !errors.Is(err, leasehold.ErrInvalid) {
		t.Errorf("closed with %v, want ErrInvalid", err)
	}
	leads(t, e, false, "with an invalid key")
	if err := e.IsLeader(t.Context()); !errors.Is(err, leasehold.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}
