// Package leaseholdprom gives Prometheus metrics of the locks of a
// [leasehold.Client].
//
//	metrics := leaseholdprom.New()
//	prometheus.MustRegister(metrics)
//	client, err := leasehold.New(store,
//		leasehold.WithObserver(metrics.Observer()),
//		leasehold.WithClass(func(key string) string {
//			class, _, _ := strings.Cut(key, "/")
//			return class
//		}))
//
// One set of metrics serves any number of clients. Each metric has the label
// class, which [leasehold.WithClass] derives from the key, and never the key;
// durations and gauges also have kind: mutex, read or semaphore.
//
//	leasehold_acquisitions_total{class,kind,outcome}  calls of Lock and TryLock; AcquiredInfo.Outcome
//	leasehold_wait_seconds{class,kind}                time to a grant, whether it had to wait or not
//	leasehold_handoff_seconds{class,kind}             from the holder's release until the next holder has it
//	leasehold_hold_seconds{class,kind}                from the grant to the end
//	leasehold_waiters{class,kind}                     calls that wait, now
//	leasehold_held_leases{class,kind}                 leases that are held, now
//	leasehold_renewals_total{class,outcome}           RenewedInfo.Outcome; "failed" is 0 from the first grant on
//	leasehold_releases_total{class,outcome}           ReleasedInfo.Outcome
//	leasehold_losses_total{class,reason}              EndedInfo.Reason; "release" if found only then;
//	                                                  0 from the first grant of the class on
//
// Watch leasehold_losses_total, and renewals that fail: they are losses that have not
// happened yet.
package leaseholdprom

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasehold-go/leasehold"
)

// Metrics is a set of metrics, a [prometheus.Collector]. It is safe for
// concurrent use.
type Metrics struct {
	acquisitions, renewals, releases, losses *prometheus.CounterVec
	wait, handOff, hold                      *prometheus.HistogramVec
	waiters, held                            *prometheus.GaugeVec

	known sync.Map // classes with counters
}

// New returns metrics that are not registered yet.
func New() *Metrics {
	return &Metrics{
		acquisitions: counter("acquisitions_total", "Calls that asked for a lock, by outcome.", "class", "kind", "outcome"),
		renewals:     counter("renewals_total", "Renewals of leases, by outcome.", "class", "outcome"),
		releases:     counter("releases_total", "Releases of leases, by outcome.", "class", "outcome"),
		losses:       counter("losses_total", "Leases that ended before they were released, by reason.", "class", "reason"),
		wait:         histogram("wait_seconds", "Time from asking for a lock until it was granted.", 0.0005, 4, 12),
		handOff:      histogram("handoff_seconds", "Time from the release of a lock until the next in the queue has it.", 0.0001, 2, 14),
		hold:         histogram("hold_seconds", "Time for which a lease was held.", 0.001, 4, 14),
		waiters:      gauge("waiters", "Calls that wait for a lock."),
		held:         gauge("held_leases", "Leases that are held."),
	}
}

const namespace = "leasehold"

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func gauge(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, []string{"class", "kind"})
}

// histogram has n classic buckets that begin with first and grow by factor, and native buckets
// for servers that support them.
func histogram(name, help string, first, factor float64, n int) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help,
		Buckets:                     prometheus.ExponentialBuckets(first, factor, n),
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}, []string{"class", "kind"})
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{
		m.acquisitions, m.renewals, m.releases, m.losses, m.wait, m.handOff, m.hold, m.waiters, m.held,
	}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(to)
	}
}

// Observer returns the observer for [leasehold.WithObserver]. It may be given to several
// clients.
func (m *Metrics) Observer() leasehold.Observer {
	return leasehold.Observer{
		Waiting: func(_ context.Context, e leasehold.WaitingInfo) {
			m.waiters.WithLabelValues(e.Class, e.Kind()).Inc()
		},
		Acquired: m.acquired,
		Renewed: func(_ context.Context, e leasehold.RenewedInfo) {
			m.renewals.WithLabelValues(e.Class, e.Outcome()).Inc()
		},
		Ended: func(_ context.Context, e leasehold.EndedInfo) {
			m.held.WithLabelValues(e.Class, e.Kind()).Dec()
			m.hold.WithLabelValues(e.Class, e.Kind()).Observe(e.Held.Seconds())
			if e.Lost() {
				m.losses.WithLabelValues(e.Class, e.Reason()).Inc()
			}
		},
		Released: func(_ context.Context, e leasehold.ReleasedInfo) {
			m.releases.WithLabelValues(e.Class, e.Outcome()).Inc()
			if e.Outcome() == "lost" {
				m.losses.WithLabelValues(e.Class, "release").Inc()
			}
		},
	}
}

// lossReasons are the reasons of [leasehold.EndedInfo] for lost leases, and "release".
var lossReasons = []string{"broken", "gone", "expired", "failed", "release"}

// beginAtZero makes the counters of a class that alerts use. For Prometheus, a counter
// that appears with the value 1 has not risen.
func (m *Metrics) beginAtZero(class string) {
	if _, known := m.known.LoadOrStore(class, true); known {
		return
	}
	for _, reason := range lossReasons {
		m.losses.WithLabelValues(class, reason)
	}
	m.renewals.WithLabelValues(class, "failed")
}

func (m *Metrics) acquired(ctx context.Context, e leasehold.AcquiredInfo) context.Context {
	kind := e.Kind()
	m.acquisitions.WithLabelValues(e.Class, kind, e.Outcome()).Inc()
	if e.Queued {
		m.waiters.WithLabelValues(e.Class, kind).Dec()
	}
	if e.Err != nil {
		return ctx
	}
	m.beginAtZero(e.Class)
	m.held.WithLabelValues(e.Class, kind).Inc()
	m.wait.WithLabelValues(e.Class, kind).Observe(e.Waited.Seconds())
	if e.Handover > 0 {
		m.handOff.WithLabelValues(e.Class, kind).Observe(e.Handover.Seconds())
	}
	return ctx
}
