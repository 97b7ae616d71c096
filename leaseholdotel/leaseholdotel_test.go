package leaseholdotel_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/leaseholdotel"
)

// lab is a client with traces and metrics.
type lab struct {
	*leasehold.Client
	seen   *recorder
	tracer trace.Tracer
}

// newLab returns a lab with another observer, too.
func newLab(t *testing.T, d driver.Driver, other leasehold.Observer, opts ...leaseholdotel.Option) *lab {
	t.Helper()
	l := &lab{seen: new(recorder)}
	l.tracer = l.seen.Tracer("test")
	observer, err := leaseholdotel.New(append([]leaseholdotel.Option{
		leaseholdotel.WithTracerProvider(l.seen),
		leaseholdotel.WithMeterProvider(l.seen),
	}, opts...)...)
	must(t, err)
	class := func(key string) string {
		class, _, _ := strings.Cut(key, "/")
		return class
	}
	l.Client, err = leasehold.New(d, leasehold.WithObserver(observer), leasehold.WithObserver(other), leasehold.WithClass(class))
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// span returns the ended span of a name.
func (l *lab) span(t *testing.T, name string) spanStub {
	t.Helper()
	all := l.seen.spans()
	i := slices.IndexFunc(all, func(s spanStub) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no span %q among %d", name, len(all))
	}
	return all[i]
}

// must ends the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lock takes a lock.
func (l *lab) lock(ctx context.Context, t *testing.T, key string) *leasehold.Lease {
	t.Helper()
	lease, err := l.Mutex(key).Lock(ctx)
	must(t, err)
	return lease
}

func attr(attrs []attribute.KeyValue, key string) string {
	for _, kv := range attrs {
		if string(kv.Key) == key {
			return fmt.Sprint(kv.Value.AsInterface())
		}
	}
	return ""
}

func events(s spanStub) string {
	var names []string
	for _, e := range s.Events {
		names = append(names, e.Name)
	}
	return strings.Join(names, " ")
}

// traced is a store that, like an instrumented client of one, adds a span to
// each request.
type traced struct {
	*memdriver.Driver
	tracer func() trace.Tracer
}

func (d traced) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	ctx, span := d.tracer().Start(ctx, "store acquire")
	defer span.End()
	return d.Driver.Acquire(ctx, req)
}

func (d traced) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	ctx, span := d.tracer().Start(ctx, "store release")
	defer span.End()
	return d.Driver.Release(ctx, ref)
}

func TestTrace_GoesFromTheCallerThroughToTheStoreAndTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *lab
		l = newLab(t, traced{memdriver.New(), func() trace.Tracer { return l.tracer }}, leasehold.Observer{})
		ctx, caller := l.tracer.Start(t.Context(), "caller")
		lease := l.lock(ctx, t, "orders/42")
		_, work := l.tracer.Start(lease.Context(), "work")
		work.End()
		time.Sleep(15 * time.Second)
		must(t, lease.Release())
		caller.End()

		id := func(name string) trace.SpanID { return l.span(t, name).SpanContext.SpanID() }
		for name, parent := range map[string]string{
			"acquire orders": "caller", "store acquire": "acquire orders", "hold orders": "caller",
			"work": "hold orders", "store release": "hold orders", "release orders": "hold orders",
		} {
			s := l.span(t, name)
			if s.Parent.SpanID() != id(parent) || s.SpanContext.TraceID() != caller.SpanContext().TraceID() {
				t.Errorf("%s is not below %s", name, parent)
			}
		}
		asking, hold := l.span(t, "acquire orders"), l.span(t, "hold orders")
		if events(asking) != "granted" || attr(asking.Attributes, "leasehold.outcome") != "granted" || attr(asking.Attributes, "leasehold.key") != "orders/42" {
			t.Errorf("acquire: %s, %v", events(asking), asking.Attributes)
		}
		if events(hold) != "renewed" || hold.EndTime.Sub(hold.StartTime) != 15*time.Second || attr(hold.Attributes, "leasehold.lease") != lease.ID() {
			t.Errorf("hold: %s, %v", events(hold), hold.Attributes)
		}
		if len(hold.Links) != 1 || hold.Links[0].SpanContext.SpanID() != asking.SpanContext.SpanID() {
			t.Errorf("hold is not linked to acquire: %v", hold.Links)
		}
	})
}

func TestTrace_TellsOfAWaitAndOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		l := newLab(t, store, leasehold.Observer{}, leaseholdotel.WithoutKeys())
		first := l.lock(t.Context(), t, "k")
		got := make(chan *leasehold.Lease)
		go func() {
			lease, err := l.Mutex("k").Lock(context.Background())
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		time.Sleep(2 * time.Second)
		l.seen.forget()
		_, err := store.Break(t.Context(), "k", first.ID(), "stuck")
		must(t, err)
		<-got
		<-first.Context().Done()
		synctest.Wait()

		asking, hold := l.span(t, "acquire k"), l.span(t, "hold k")
		if events(asking) != "queued granted" || asking.EndTime.Sub(asking.StartTime) < 2*time.Second {
			t.Errorf("acquire: %s", events(asking))
		}
		if !strings.HasSuffix(events(hold), "lost") || hold.Status.Code != codes.Error || !strings.Contains(hold.Status.Description, "stuck") || attr(hold.Attributes, "leasehold.reason") != "broken" {
			t.Errorf("hold: %s, %v, %v", events(hold), hold.Status, hold.Attributes)
		}
		if key := attr(asking.Attributes, "leasehold.key"); key != "" {
			t.Errorf("the key %q is reported", key)
		}
	})
}

// Another observer may begin spans, too, which are active in the contexts that it returns.
func TestTrace_KeepsItsSpansApartFromThoseOfAnotherObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := new(recorder)
		begin := func(ctx context.Context, name string) context.Context {
			ctx, _ = begun.Tracer("other").Start(ctx, name) // which never ends
			return ctx
		}
		l := newLab(t, memdriver.New(), leasehold.Observer{
			Acquire:  func(ctx context.Context, _ leasehold.LockInfo) context.Context { return begin(ctx, "other asks") },
			Acquired: func(ctx context.Context, _ leasehold.AcquiredInfo) context.Context { return begin(ctx, "other holds") },
		})
		lease := l.lock(t.Context(), t, "k")
		time.Sleep(15 * time.Second)
		must(t, lease.Release())
		if ended := begun.spans(); len(ended) != 0 {
			t.Errorf("the span %q of the other observer has ended", ended[0].Name)
		}
		asking, hold, release := l.span(t, "acquire k"), l.span(t, "hold k"), l.span(t, "release k")
		if events(asking) != "granted" || events(hold) != "renewed" || attr(hold.Attributes, "leasehold.reason") != "released" {
			t.Errorf("acquire: %s; hold: %s, %v", events(asking), events(hold), hold.Attributes)
		}
		if len(hold.Links) != 1 || hold.Links[0].SpanContext.SpanID() != asking.SpanContext.SpanID() || release.Parent.SpanID() != hold.SpanContext.SpanID() {
			t.Errorf("hold is linked to %v, and release is below %v", hold.Links, release.Parent)
		}
	})
}

func TestTrace_BusyIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, memdriver.New(), leasehold.Observer{})
		l.lock(t.Context(), t, "k")
		l.seen.forget()
		if _, err := l.Mutex("k").TryLock(t.Context()); err == nil {
			t.Fatal("granted twice")
		}
		if s := l.span(t, "acquire k"); s.Status.Code != codes.Unset || attr(s.Attributes, "leasehold.outcome") != "held" {
			t.Errorf("%v, %v", s.Status, s.Attributes)
		}
		l.seen.forget()
		if _, err := l.Semaphore("k", 2).TryLock(t.Context()); err == nil {
			t.Fatal("granted twice")
		}
		must(t, l.Close())
		l.seen.forget()
		if _, err := l.Mutex("k").TryLock(t.Context()); err == nil {
			t.Fatal("granted by a closed client")
		}
		if s := l.span(t, "acquire k"); s.Status.Code != codes.Error {
			t.Errorf("%v, %v", s.Status, s.Attributes)
		}
	})
}

func TestMetrics_MeasureALife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		l := newLab(t, store, leasehold.Observer{})
		lease := l.lock(t.Context(), t, "orders/42")
		_, _ = l.Mutex("orders/42").TryLock(t.Context())
		time.Sleep(25 * time.Second)
		if got := l.sums(t); got["leasehold.leases"] != 1 || got["leasehold.acquisitions outcome=granted"] != 1 || got["leasehold.acquisitions outcome=held"] != 1 {
			t.Errorf("while it was held: %v", got)
		}
		_, err := store.Release(t.Context(), driver.Ref{Key: "orders/42", ID: lease.ID()})
		must(t, err)
		if err := lease.Release(); err == nil {
			t.Error("a lost lease was released")
		}
		got := l.sums(t)
		for name, want := range map[string]float64{
			"leasehold.leases": 0, "leasehold.hold.duration": 25, "leasehold.wait.duration": 0,
			"leasehold.renewals outcome=confirmed": 2, "leasehold.losses reason=release": 1, "leasehold.releases outcome=lost": 1,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
	})
}

// sums adds up the measurements by instrument and by outcome or reason, and
// refuses a key among the attributes.
func (l *lab) sums(t *testing.T) map[string]float64 {
	t.Helper()
	sums := make(map[string]float64)
	for _, m := range l.seen.measurements() {
		name := m.name
		for _, kv := range m.attrs.ToSlice() {
			switch value := fmt.Sprint(kv.Value.AsInterface()); {
			case strings.Contains(value, "42"):
				t.Errorf("%s names the key: %s=%s", name, kv.Key, value)
			case kv.Key == "leasehold.outcome" || kv.Key == "leasehold.reason":
				name += " " + strings.TrimPrefix(string(kv.Key), "leasehold.") + "=" + value
			}
		}
		sums[name] += m.n
	}
	return sums
}
