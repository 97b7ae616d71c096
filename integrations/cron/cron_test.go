package leaseholdcron_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/leasehold-go/leasehold"
	leaseholdcron "github.com/leasehold-go/leasehold/integrations/cron"
	"github.com/leasehold-go/leasehold/leaseholdtest"
)

// logger keeps the lines of the log.
type logger struct {
	skips  chan string
	errors chan error
}

func newLogger() logger {
	return logger{skips: make(chan string, 1000), errors: make(chan error, 1000)}
}

func (l logger) Info(msg string, args ...any)             { l.skips <- fmt.Sprint(append([]any{msg}, args...)...) }
func (l logger) Error(err error, msg string, args ...any) { l.errors <- err }

// start runs the job on a host every minute until the end of the test. cron begins at whole
// seconds, so the clocks of two hosts differ by the sleep in between.
func start(t *testing.T, job cron.Job) {
	t.Helper()
	c := cron.New()
	if _, err := c.AddJob("* * * * *", job); err != nil {
		t.Fatal(err)
	}
	c.Start()
	t.Cleanup(func() { <-c.Stop().Done() })
}

// late is a job that a host with a late clock begins later.
func late(d time.Duration, job cron.Job) cron.Job {
	return cron.FuncJob(func() { time.Sleep(d); job.Run() })
}

func TestOneHost_RunsEachTickOnceOnHostsWhoseClocksDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		log := newLogger()
		var runs atomic.Int64
		job := cron.FuncJob(func() { runs.Add(1) }) // takes no time
		for i := range 3 {
			one := leaseholdcron.OneHost(client, "nightly", log)(job)
			start(t, late(time.Duration(i)*200*time.Millisecond, one))
			client = store.Client()
		}
		time.Sleep(10*time.Minute + time.Second)
		if n := runs.Load(); n != 10 {
			t.Errorf("%d runs in ten minutes, on three hosts, want 10", n)
		}
		if len(log.skips) != 20 || len(log.errors) != 0 {
			t.Errorf("%d skips and %d errors were logged, want 20 and 0", len(log.skips), len(log.errors))
		}
	})
}

func TestOneHost_SkipsRunsWhileTheStoreIsAwayAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		log := newLogger()
		var runs atomic.Int64
		start(t, leaseholdcron.OneHost(client, "nightly", log)(cron.FuncJob(func() { runs.Add(1) })))
		store.Down()
		if err := <-log.errors; !errors.Is(err, leasehold.ErrUnavailable) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
		store.Freeze()
		if err := <-log.errors; !errors.Is(err, leasehold.ErrUnknown) {
			t.Errorf("%v, want ErrUnknown", err)
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

func TestOneHost_GivesTheLockBackAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		log := newLogger()
		start(t, cron.NewChain(
			cron.Recover(log),
			leaseholdcron.OneHost(client, "nightly", log),
		).Then(cron.FuncJob(func() { panic("at once") })))
		if err := <-log.errors; err == nil {
			t.Error("the panic was logged without an error")
		}
		store.AwaitHeld("nightly", false)
	})
}

func TestJob_LosesItsContextWithItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := leaseholdtest.New(t)
		log := newLogger()
		began := make(chan int64, 100)
		start(t, leaseholdcron.Job(client, "nightly", log, func(ctx context.Context, lease *leasehold.Lease) error {
			began <- lease.Token()
			<-ctx.Done()
			return nil // it stops without an error
		}))
		if token := <-began; token == 0 {
			t.Error("the work has no token")
		}
		if time.Sleep(time.Hour + time.Second); len(began) != 0 {
			t.Error("another run began next to it: the lease was not renewed")
		}
		store.Lose("nightly")
		if err := <-log.errors; !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("%v, want ErrLost", err)
		}
	})
}

func TestJob_LogsWhatItsWorkReturns(t *testing.T) {
	client, _ := leaseholdtest.New(t)
	log, broken := newLogger(), errors.New("broken")
	leaseholdcron.Job(client, "nightly", log, func(context.Context, *leasehold.Lease) error { return broken }).Run()
	if err := <-log.errors; !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}

func TestOneHost_SaysWhatIsWrongWithItsKey(t *testing.T) {
	client, _ := leaseholdtest.New(t)
	log := newLogger()
	leaseholdcron.OneHost(client, "", log)(cron.FuncJob(func() { t.Error("it ran") })).Run()
	if err := <-log.errors; !errors.Is(err, leasehold.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}
