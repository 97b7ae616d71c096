// Package leaseholdotel gives OpenTelemetry traces and metrics of the locks of
// a [leasehold.Client].
//
//	observer, err := leaseholdotel.New()
//	…
//	client, err := leasehold.New(store, leasehold.WithObserver(observer))
//
// # Traces
//
// A call of Lock or TryLock is a span, "acquire CLASS", below that of the
// caller, from asking until the lock is granted or not, with an event
// when it has to wait. The span is active in the context of the requests to the
// store, so that an instrumented client of the store adds its own below. A lease
// that was granted is another span, "hold CLASS", until it ends, with an event
// for each renewal and the cause of a loss. It is active in the lease's context,
// so that the work done under the lease lies below it, and so does the span of
// the release.
//
// Over package httpdriver, give it an HTTP client that is instrumented
// (httpdriver.WithClient), and put an instrumented handler around package
// server, or give it a tracer as "leasehold serve" does: then one trace goes
// from the caller through the service to its store. The service writes the
// trace's id into its log in any case.
//
// # Metrics
//
//	leasehold.acquisitions       calls of Lock and TryLock, by outcome
//	leasehold.wait.duration      seconds until a lock was granted
//	leasehold.handoff.duration   seconds from the holder's release until the next holder has the lock
//	leasehold.hold.duration      seconds from the grant to the end
//	leasehold.waiters            calls that wait, now
//	leasehold.leases             leases that are held, now
//	leasehold.renewals           renewals, by outcome
//	leasehold.releases           releases, by outcome
//	leasehold.losses             leases that were lost, by reason
//
// They have the attributes leasehold.class, which [leasehold.WithClass] derives
// from the key, and leasehold.kind: mutex, read or semaphore; outcomes and
// reasons are the words of leasehold.AcquiredInfo and its neighbours. Keys are
// attributes of spans only.
package leaseholdotel

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold"
)

// scope names this package as the source of spans and metrics.
const scope = "github.com/leasehold-go/leasehold/leaseholdotel"

// Option configures an observer.
type Option func(*config)

type config struct {
	traces  trace.TracerProvider
	metrics metric.MeterProvider
	keys    bool
}

// WithTracerProvider sets where spans go. Default: the global provider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) { c.traces = p }
}

// WithMeterProvider sets where metrics go. Default: the global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) { c.metrics = p }
}

// WithoutKeys keeps the keys of locks out of spans, if keys are confidential.
func WithoutKeys() Option {
	return func(c *config) { c.keys = false }
}

// New returns an observer for [leasehold.WithObserver]. One serves any number
// of clients. The error is that of a meter provider that refuses an instrument.
func New(opts ...Option) (leasehold.Observer, error) {
	c := config{traces: otel.GetTracerProvider(), metrics: otel.GetMeterProvider(), keys: true}
	for _, o := range opts {
		o(&c)
	}
	m, err := newMeters(c.metrics.Meter(scope))
	if err != nil {
		return leasehold.Observer{}, fmt.Errorf("leaseholdotel: %w", err)
	}
	o := &observer{tracer: c.traces.Tracer(scope), meters: m, keys: c.keys}
	return leasehold.Observer{
		Acquire: o.acquire, Waiting: o.waiting, Acquired: o.acquired,
		Renewed: o.renewed, Ended: o.ended, Released: o.released,
	}, nil
}
