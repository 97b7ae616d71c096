package leaseholdotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// The attributes.
const (
	class   = attribute.Key("leasehold.class")
	kind    = attribute.Key("leasehold.kind")
	outcome = attribute.Key("leasehold.outcome")
	reason  = attribute.Key("leasehold.reason")
	failure = attribute.Key("error.message")
)

// meters are the instruments.
type meters struct {
	acquisitions, renewals, releases, losses metric.Int64Counter
	wait, handOff, hold                      metric.Float64Histogram
	waiters, leases                          metric.Int64UpDownCounter
}

// bounds of the buckets of durations, in seconds: from the hand-over in one
// machine to a day.
var bounds = metric.WithExplicitBucketBoundaries(
	0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
	1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 28800, 86400,
)

func newMeters(m metric.Meter) (*meters, error) {
	var errs []error
	counter := func(name, unit, help string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
		errs = append(errs, err)
		return c
	}
	gauge := func(name, unit, help string) metric.Int64UpDownCounter {
		g, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(help))
		errs = append(errs, err)
		return g
	}
	seconds := func(name, help string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help), bounds)
		errs = append(errs, err)
		return h
	}
	all := &meters{
		acquisitions: counter("leasehold.acquisitions", "{call}", "Calls that asked for a lock, by outcome."),
		renewals:     counter("leasehold.renewals", "{renewal}", "Renewals of leases, by outcome."),
		releases:     counter("leasehold.releases", "{release}", "Releases of leases, by outcome."),
		losses:       counter("leasehold.losses", "{lease}", "Leases that ended before they were released, by reason."),
		wait:         seconds("leasehold.wait.duration", "Time from asking for a lock until it was granted."),
		handOff:      seconds("leasehold.handoff.duration", "Time from the release of a lock until the next in the queue has it."),
		hold:         seconds("leasehold.hold.duration", "Time for which a lease was held."),
		waiters:      gauge("leasehold.waiters", "{call}", "Calls that wait for a lock."),
		leases:       gauge("leasehold.leases", "{lease}", "Leases that are held."),
	}
	return all, oneline.Join(errs...)
}

// of are the attributes of a measurement.
func (m *meters) of(l *leasehold.LockInfo, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, class.String(l.Class), kind.String(l.Kind()))...)
}

func (m *meters) acquired(ctx context.Context, e *leasehold.AcquiredInfo) {
	lock := m.of(&e.LockInfo)
	m.acquisitions.Add(ctx, 1, m.of(&e.LockInfo, outcome.String(e.Outcome())))
	if e.Queued {
		m.waiters.Add(ctx, -1, lock)
	}
	if e.Err != nil {
		return
	}
	m.leases.Add(ctx, 1, lock)
	m.wait.Record(ctx, e.Waited.Seconds(), lock)
	if e.Handover > 0 {
		m.handOff.Record(ctx, e.Handover.Seconds(), lock)
	}
}

func (m *meters) ended(ctx context.Context, e *leasehold.EndedInfo) {
	lock := m.of(&e.LockInfo)
	m.leases.Add(ctx, -1, lock)
	m.hold.Record(ctx, e.Held.Seconds(), lock)
	if e.Lost() {
		m.losses.Add(ctx, 1, m.of(&e.LockInfo, reason.String(e.Reason())))
	}
}

func (m *meters) released(ctx context.Context, e *leasehold.ReleasedInfo) {
	m.releases.Add(ctx, 1, m.of(&e.LockInfo, outcome.String(e.Outcome())))
	if e.Outcome() == "lost" {
		m.losses.Add(ctx, 1, m.of(&e.LockInfo, reason.String("release")))
	}
}
