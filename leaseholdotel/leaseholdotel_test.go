package leaseholdotel_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/leaseholdotel"
)

// lab is a client with traces and metrics.
type lab struct {
	*testing.T
	*leasehold.Client
	seen   *recorder
	tracer trace.Tracer
}

// labs runs play in virtual time with a lab on the store of a recorder, which has another observer, too.
func labs(
	t *testing.T, store func(*recorder) driver.Driver, other leasehold.Observer, play func(l *lab), opts ...leaseholdotel.Option,
) {
	synctest.Test(t, func(t *testing.T) {
		l := &lab{T: t, seen: new(recorder)}
		l.tracer = l.seen.Tracer("test")
		opts = append(opts, leaseholdotel.WithTracerProvider(l.seen), leaseholdotel.WithMeterProvider(l.seen))
		observer, err := leaseholdotel.New(opts...)
		ask.NoError(t, err)
		class := func(key string) string {
			class, _, _ := strings.Cut(key, "/")
			return class
		}
		l.Client, err = leasehold.New(store(l.seen),
			leasehold.WithObserver(observer), leasehold.WithObserver(other), leasehold.WithClass(class))
		ask.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		play(l)
	})
}

// memory returns a function that returns the store.
func memory(d *memdriver.Driver) func(*recorder) driver.Driver {
	return func(*recorder) driver.Driver { return d }
}

// span returns the ended span of a name.
func (l *lab) span(name string) *span {
	l.Helper()
	all := l.seen.spans()
	i := slices.IndexFunc(all, func(s *span) bool { return s.name == name })
	if i < 0 {
		l.Fatalf("no span %q among %d", name, len(all))
	}
	return all[i]
}

// lock takes a lock.
func (l *lab) lock(ctx context.Context, key string) *leasehold.Lease {
	l.Helper()
	lease, err := l.Mutex(key).Lock(ctx)
	ask.NoError(l, err)
	return lease
}

// attr returns the value of an attribute.
func (s *span) attr(key string) string {
	for _, kv := range s.attrs {
		if string(kv.Key) == key {
			return fmt.Sprint(kv.Value.AsInterface())
		}
	}
	return ""
}

// tells fails the test unless the span has the events, in their order, and the attribute.
func (l *lab) tells(s *span, events, key, value string) {
	l.Helper()
	if got := strings.Join(s.events, " "); got != events || s.attr(key) != value {
		l.Errorf("%s: %s, %v; want %s, and %s %q", s.name, got, s.attrs, events, key, value)
	}
}

// traced is a store that, like an instrumented client of one, adds a span to
// each request.
type traced struct {
	*memdriver.Driver
	tracer trace.Tracer
}

func (d traced) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	ctx, span := d.tracer.Start(ctx, "store acquire")
	defer span.End()
	return d.Driver.Acquire(ctx, req)
}

func (d traced) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	ctx, span := d.tracer.Start(ctx, "store release")
	defer span.End()
	return d.Driver.Release(ctx, ref)
}

func TestTrace_GoesFromTheCallerThroughToTheStoreAndTheWork(t *testing.T) {
	store := func(r *recorder) driver.Driver { return traced{memdriver.New(), r.Tracer("store")} }
	labs(t, store, leasehold.Observer{}, func(l *lab) {
		ctx, caller := l.tracer.Start(l.Context(), "caller")
		lease := l.lock(ctx, "orders/42")
		_, work := l.tracer.Start(lease.Context(), "work")
		work.End()
		time.Sleep(15 * time.Second)
		ask.NoError(l, lease.Release())
		caller.End()
		for name, parent := range map[string]string{
			"acquire orders": "caller", "store acquire": "acquire orders", "hold orders": "caller",
			"work": "hold orders", "store release": "hold orders", "release orders": "hold orders",
		} {
			s := l.span(name)
			if s.parent != l.span(parent).is.SpanID() || s.is.TraceID() != caller.SpanContext().TraceID() {
				l.Errorf("%s is not below %s", name, parent)
			}
		}
		asking, hold := l.span("acquire orders"), l.span("hold orders")
		l.tells(asking, "granted", "leasehold.outcome", "granted")
		l.tells(asking, "granted", "leasehold.key", "orders/42")
		l.tells(hold, "renewed", "leasehold.lease", lease.ID())
		if took := hold.end.Sub(hold.start); took != 15*time.Second {
			l.Errorf("held for %v", took)
		}
		if len(hold.links) != 1 || hold.links[0].SpanContext.SpanID() != asking.is.SpanID() {
			l.Errorf("hold is not linked to acquire: %v", hold.links)
		}
	})
}

func TestTrace_TellsOfAWaitAndOfALoss(t *testing.T) {
	store := memdriver.New()
	labs(t, memory(store), leasehold.Observer{}, func(l *lab) {
		first := l.lock(l.Context(), "k")
		got := make(chan *leasehold.Lease)
		go func() { got <- l.lock(context.WithoutCancel(l.Context()), "k") }()
		time.Sleep(2 * time.Second)
		l.seen.forget()
		_, err := store.Break(l.Context(), "k", first.ID(), "stuck")
		ask.NoError(l, err)
		<-got
		<-first.Context().Done()
		synctest.Wait()

		asking, hold := l.span("acquire k"), l.span("hold k")
		if l.tells(asking, "queued granted", "leasehold.key", ""); asking.end.Sub(asking.start) < 2*time.Second {
			l.Errorf("waited from %v to %v", asking.start, asking.end)
		}
		if hold.events[len(hold.events)-1] != "lost" || hold.status != codes.Error ||
			!strings.Contains(hold.description, "stuck") || hold.attr("leasehold.reason") != "broken" {
			l.Errorf("hold: %s, %v %s, %v", hold.events, hold.status, hold.description, hold.attrs)
		}
	}, leaseholdotel.WithoutKeys())
}

// Another observer may begin spans, too, which are active in the contexts that it returns.
func TestTrace_KeepsItsSpansApartFromThoseOfAnotherObserver(t *testing.T) {
	begun := new(recorder)
	begin := func(ctx context.Context, name string) context.Context {
		ctx, _ = begun.Tracer("other").Start(ctx, name) // which never ends
		return ctx
	}
	other := leasehold.Observer{
		Acquire:  func(ctx context.Context, _ leasehold.LockInfo) context.Context { return begin(ctx, "other asks") },
		Acquired: func(ctx context.Context, _ leasehold.AcquiredInfo) context.Context { return begin(ctx, "other holds") },
	}
	labs(t, memory(memdriver.New()), other, func(l *lab) {
		lease := l.lock(l.Context(), "k")
		time.Sleep(15 * time.Second)
		ask.NoError(l, lease.Release())
		if ended := begun.spans(); len(ended) != 0 {
			l.Errorf("the span %q of the other observer has ended", ended[0].name)
		}
		asking, hold, release := l.span("acquire k"), l.span("hold k"), l.span("release k")
		l.tells(asking, "granted", "leasehold.outcome", "granted")
		l.tells(hold, "renewed", "leasehold.reason", "released")
		if len(hold.links) != 1 || hold.links[0].SpanContext.SpanID() != asking.is.SpanID() ||
			release.parent != hold.is.SpanID() {
			l.Errorf("hold is linked to %v, and release is below %v", hold.links, release.parent)
		}
	})
}

func TestTrace_BusyIsNoError(t *testing.T) {
	labs(t, memory(memdriver.New()), leasehold.Observer{}, func(l *lab) {
		l.lock(l.Context(), "k")
		refused := func(lock leasehold.Locker, want codes.Code) *span {
			l.seen.forget()
			if _, err := lock.TryLock(l.Context()); err == nil {
				l.Fatal("granted twice, or by a closed client")
			}
			s := l.span("acquire k")
			if s.status != want {
				l.Errorf("%v, %v", s.status, s.attrs)
			}
			return s
		}
		l.tells(refused(l.Mutex("k"), codes.Unset), "", "leasehold.outcome", "held")
		refused(l.Semaphore("k", 2), codes.Unset)
		ask.NoError(l, l.Close())
		refused(l.Mutex("k"), codes.Error)
	})
}

func TestMetrics_MeasureALife(t *testing.T) {
	store := memdriver.New()
	labs(t, memory(store), leasehold.Observer{}, func(l *lab) {
		measures := func(want map[string]float64) {
			l.Helper()
			got := l.seen.measured()
			for name, n := range want {
				if is, ok := got[name]; is != n || !ok {
					l.Errorf("%s is %v, want %v, in %v", name, is, n, got)
				}
			}
		}
		lease := l.lock(l.Context(), "orders/42")
		_, _ = l.Mutex("orders/42").TryLock(l.Context())
		time.Sleep(25 * time.Second)
		measures(map[string]float64{
			"leasehold.leases": 1, "leasehold.acquisitions outcome=granted": 1, "leasehold.acquisitions outcome=held": 1,
		})
		_, err := store.Release(l.Context(), driver.Ref{Key: "orders/42", ID: lease.ID()})
		ask.NoError(l, err)
		if err := lease.Release(); err == nil {
			l.Error("a lost lease was released")
		}
		measures(map[string]float64{
			"leasehold.leases": 0, "leasehold.hold.duration": 25, "leasehold.wait.duration": 0,
			"leasehold.renewals outcome=confirmed": 2, "leasehold.losses reason=release": 1, "leasehold.releases outcome=lost": 1,
		})
	})
}
