package library_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// diary records the calls of an observer as lines of text.
type diary struct {
	mu    sync.Mutex
	lines []string
	acq   []leasehold.AcquiredInfo
	ended []leasehold.EndedInfo
	stats leasehold.Stats // as far as leases that were granted show
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// count adds one to the first counter if ok is true, or else to the second.
func (d *diary) count(ok bool, yes, no *int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !ok {
		yes = no
	}
	*yes++
}

// take returns the lines since the last call, and forgets them.
func (d *diary) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func (d *diary) want(t *testing.T, want ...string) {
	t.Helper()
	if got := d.take(); !slices.Equal(got, want) {
		t.Errorf("observed:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (d *diary) observer() leasehold.Observer {
	return leasehold.Observer{
		Acquire: func(ctx context.Context, l leasehold.LockInfo) context.Context {
			d.note("acquire %s %s %s", l.Class, l.Kind(), l.Key)
			return ctx
		},
		Waiting: func(_ context.Context, e leasehold.WaitingInfo) {
			d.note("waiting at %d for %s", e.Position, e.Holder)
		},
		Acquired: func(ctx context.Context, e leasehold.AcquiredInfo) context.Context {
			d.note("acquired: %s after %v", e.Outcome(), e.Waited)
			d.mu.Lock()
			defer d.mu.Unlock()
			d.acq = append(d.acq, e)
			return ctx
		},
		Renewed: func(_ context.Context, e leasehold.RenewedInfo) {
			d.note("renewed: %s", e.Outcome())
			d.count(e.Err == nil, &d.stats.Renewed, &d.stats.Failed)
		},
		Ended: func(_ context.Context, e leasehold.EndedInfo) {
			d.note("ended: %s after %v", e.Reason(), e.Held)
			d.count(e.Lost(), &d.stats.Lost, &d.stats.Released)
			d.mu.Lock()
			defer d.mu.Unlock()
			d.ended = append(d.ended, e)
		},
		Released: func(_ context.Context, e leasehold.ReleasedInfo) {
			d.note("released: %s", e.Outcome())
			d.mu.Lock()
			defer d.mu.Unlock()
			if e.Outcome() == "lost" { // found only now
				d.stats.Lost, d.stats.Released = d.stats.Lost+1, d.stats.Released-1
			}
		},
	}
}

// observed opens a client with a diary as its observer.
func observed(t *testing.T, store *memdriver.Driver, opts ...leasehold.Option) (*leasehold.Client, *faultDriver, *diary) {
	t.Helper()
	d := &diary{}
	c, f := open(t, store, append([]leasehold.Option{leasehold.WithObserver(d.observer()), leasehold.WithTTL(ttl)}, opts...)...)
	return c, f, d
}

func TestObserver_IsToldOfAWaitAndOfTheHandover(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		holder, _ := open(t, store, leasehold.WithName("worker-7"))
		c, f, d := observed(t, store)
		held := lock(t, holder, "k")
		// The message that hands the lock over takes its time.
		f.hints = func(h driver.Hint, to func(driver.Hint)) {
			time.Sleep(20 * time.Millisecond)
			to(h)
		}
		all := queueUp(t, c, 1)
		time.Sleep(3 * time.Second)
		giveBack(t, held)
		l := all.served(0)
		synctest.Wait()
		d.want(t, "acquire lock mutex k", "waiting at 1 for worker-7", "acquired: granted after 3.02s", "renewed: confirmed")
		if a := d.acq[0]; !a.Queued || a.Handover < 20*time.Millisecond || a.Handover > 60*time.Millisecond {
			t.Errorf("queued %t, handed off in %v", a.Queued, a.Handover)
		}
		inner := must(t)(c.Mutex("k").Lock(l.Context())) // the same lease
		giveBack(t, inner, l)
		d.want(t, "ended: released after 0s", "released: confirmed")
		if d.acq[0].ID != l.ID() || d.acq[0].Token != l.Token() || d.ended[0].Token != l.Token() {
			t.Errorf("observed %+v and %+v, want id %s, token %d", d.acq[0], d.ended[0], l.ID(), l.Token())
		}

		l = lock(t, c, "k")
		f.on(release, 0, hangs)
		wantErr(t, l.Release(), leasehold.ErrUnknown)
		d.want(t, "acquire lock mutex k", "acquired: granted after 0s", "ended: released after 0s", "released: unknown")
	})
}

func TestObserver_OutcomeOfACallThatEndsWithoutALease(t *testing.T) {
	try := func(ctx context.Context, c *leasehold.Client) (*leasehold.Lease, error) {
		return c.Mutex("taken").TryLock(ctx)
	}
	for want, row := range map[string]struct {
		fault *fault
		take  func(ctx context.Context, c *leasehold.Client) (*leasehold.Lease, error)
	}{
		"held": {take: try},
		"timeout": {take: func(ctx context.Context, c *leasehold.Client) (*leasehold.Lease, error) {
			return c.Mutex("taken", leasehold.WithMaxWait(time.Second)).Lock(ctx)
		}},
		"canceled": {take: func(ctx context.Context, c *leasehold.Client) (*leasehold.Lease, error) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return c.Mutex("taken").Lock(ctx)
		}},
		"unknown":     {fault: &hangs, take: try},
		"unavailable": {fault: &refuses, take: try},
		"refused": {take: func(ctx context.Context, c *leasehold.Client) (*leasehold.Lease, error) {
			return c.Semaphore("places", 3).TryLock(ctx)
		}},
		"closed": {take: func(ctx context.Context, c *leasehold.Client) (*leasehold.Lease, error) {
			_ = c.Close()
			return try(ctx, c)
		}},
	} {
		runBubble(t, want, func(t *testing.T, store *memdriver.Driver) {
			other, _ := open(t, store)
			lock(t, other, "taken")
			if _, err := other.Semaphore("places", 2).TryLock(t.Context()); err != nil {
				t.Fatal(err)
			}
			c, f, d := observed(t, store)
			if row.fault != nil {
				f.on(acquire, 0, *row.fault)
			}
			if _, err := row.take(t.Context(), c); err == nil {
				t.Fatal("granted")
			}
			lines := d.take()
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, "acquired: "+want+" ") {
				t.Errorf("observed %q", lines)
			}
			if n := len(d.acq); n != 1 {
				t.Errorf("observed %d ends", n)
			}
		})
	}
}

// TestObserver_HR_H9_ReasonOfTheEndOfALease also compares the events with Stats.
func TestObserver_HR_H9_ReasonOfTheEndOfALease(t *testing.T) {
	const lost = true
	late := func(_ *testing.T, _ *memdriver.Driver, l *leasehold.Lease) {
		<-l.Context().Done()
		time.Sleep(2 * ttl)
	}
	for name, row := range map[string]struct {
		want     string
		lost     bool
		renewals *fault
		opts     []leasehold.Option
		end      func(*testing.T, *memdriver.Driver, *leasehold.Lease) // nil waits for it
	}{
		"detached": {"detached", !lost, nil, nil, func(t *testing.T, _ *memdriver.Driver, l *leasehold.Lease) {
			noErr(t, l.Detach(t.Context()))
		}},
		"released": {"released", !lost, nil, nil, func(t *testing.T, _ *memdriver.Driver, l *leasehold.Lease) {
			time.Sleep(ttl)
			giveBack(t, l)
		}},
		"found gone": {"released", !lost, nil, nil, func(t *testing.T, store *memdriver.Driver, l *leasehold.Lease) {
			deleteIt(t, store, l)
			wantErr(t, l.Release(), leasehold.ErrLost)
		}},
		"broken":   {"broken", lost, nil, nil, breakIt},
		"gone":     {"gone", lost, nil, nil, deleteIt},
		"expired":  {"expired", lost, &hangs, nil, nil},
		"late":     {"expired", lost, &fault{late: ttl}, nil, late},
		"failed":   {"failed", lost, &fails, one(leasehold.WithMaxRenewAttempts(2)), nil},
		"overrun":  {"expired", lost, nil, one(leasehold.WithMaxHold(time.Second)), late},
		"max_hold": {"max_hold", !lost, nil, one(leasehold.WithMaxHold(time.Second)), nil},
		"closed":   {want: "closed"},
		"context":  {want: "context"},
	} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			c, f, d := observed(t, store, row.opts...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := must(t)(c.Mutex("k").Lock(ctx))
			if row.renewals != nil {
				f.on(renew, 0, *row.renewals)
			}
			switch {
			case row.end != nil:
				row.end(t, store, l)
			case name == "context":
				cancel()
			case name == "closed":
				noErr(t, c.Close())
			}
			<-l.Context().Done()
			_ = l.Release()
			synctest.Wait()
			d.mu.Lock()
			defer d.mu.Unlock()
			if len(d.ended) != 1 {
				t.Fatalf("observed %q; want one end", d.lines)
			}
			if d.ended[0].Reason() != row.want || d.ended[0].Lost() != row.lost {
				t.Errorf("observed %q, lost %t", d.lines, d.ended[0].Lost())
			}
			got := c.Stats()
			if got.Granted, got.Held = 0, 0; got != d.stats {
				t.Errorf("stats %+v, the events count %+v: %q", got, d.stats, d.lines)
			}
		})
	}
}

type mark struct{}

func TestObserver_ContextReachesTheStoreAndTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		carry := func(value string) func(context.Context) context.Context {
			return func(ctx context.Context) context.Context { return context.WithValue(ctx, mark{}, value) }
		}
		var ended any
		// With two observers, the context of the later observer derives from that of the earlier
		// one.
		first := leasehold.Observer{Acquire: func(ctx context.Context, _ leasehold.LockInfo) context.Context { return carry("first")(ctx) }}
		second := leasehold.Observer{
			Acquire: func(ctx context.Context, _ leasehold.LockInfo) context.Context {
				if ctx.Value(mark{}) != "first" {
					t.Error("the first observer was not asked first")
				}
				return carry("asking")(ctx)
			},
			Acquired: func(ctx context.Context, _ leasehold.AcquiredInfo) context.Context { return carry("holding")(ctx) },
			Ended:    func(ctx context.Context, _ leasehold.EndedInfo) { ended = ctx.Value(mark{}) },
		}
		c, d := open(t, store, leasehold.WithObserver(first), leasehold.WithObserver(second))
		l := lock(t, c, "k")
		if got := l.Context().Value(mark{}); got != "holding" {
			t.Errorf("the lease carries %v", got)
		}
		giveBack(t, l)
		if asked, released := d.seen(acquire)[0].mark, d.seen(release)[0].mark; asked != "asking" || released != "holding" || ended != "holding" {
			t.Errorf("the store saw %v and %v, the observer %v", asked, released, ended)
		}
	})
}

func TestObserver_ToldClassesAreBoundedAndKindsAreNamed(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		classes, kinds := make(map[string]int), make(map[string]string)
		o := leasehold.Observer{Acquire: func(ctx context.Context, l leasehold.LockInfo) context.Context {
			classes[l.Class]++
			kinds[l.Key] = l.Kind()
			return ctx
		}}
		c, _ := open(t, store, leasehold.WithObserver(o), leasehold.WithClass(strings.ToUpper))
		must(t)(c.RWMutex("b").TryLock(t.Context()))
		must(t)(c.RWMutex("c").TryRLock(t.Context()))
		must(t)(c.Semaphore("d", 2).TryLock(t.Context()))
		for i := range 3*leasehold.MaxClasses - 3 {
			lock(t, c, fmt.Sprint("a", i))
		}
		if len(classes) != leasehold.MaxClasses+1 || classes["other"] != 2*leasehold.MaxClasses || classes["A7"] != 1 || classes["B"] != 1 {
			t.Errorf("%d classes, %d locks of the class other", len(classes), classes["other"])
		}
		if kinds["a7"] != "mutex" || kinds["b"] != "mutex" || kinds["c"] != "read" || kinds["d"] != "semaphore" {
			t.Errorf("kinds %q, %q, %q and %q", kinds["a7"], kinds["b"], kinds["c"], kinds["d"])
		}
	})
}

func TestObserver_OutcomesOfTheQuorumAreTold(t *testing.T) {
	for err, want := range map[error]string{
		leasehold.ErrNoQuorum: "no_quorum", leasehold.ErrNotReplicated: "not_replicated", errors.New("odd"): "error",
	} {
		if got := (&leasehold.AcquiredInfo{Err: fmt.Errorf("x: %w", err)}).Outcome(); got != want {
			t.Errorf("%v is %q", err, got)
		}
	}
}
