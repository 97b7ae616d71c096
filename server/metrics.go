package server

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leasehold-go/leasehold/driver"
)

// metrics are the metrics of the service. No label names a lock or a client.
type metrics struct {
	requests *prometheus.CounterVec
	renewals *prometheus.CounterVec
	duration *prometheus.HistogramVec
	running  *prometheus.GaugeVec
	all      *prometheus.Registry // of these
	handler  http.Handler

	gauges cache[*Route, prometheus.Gauge] // of running, and
	series cache[outcome, series]          // of requests and duration
}

// outcome is the labels of a request in the metrics.
type outcome struct {
	route  *Route
	status int
	cause  *Cause
}

// series are the metrics of one outcome.
type series struct {
	requests prometheus.Counter
	duration prometheus.Observer
}

func newMetrics(q *quota) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leasehold_http_requests_total",
			Help: "Requests that were answered, by operation, status and the problem's cause.",
		}, []string{"operation", "status", "cause"}),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leasehold_http_renewals_total",
			Help: "Leases and places that were to be renewed, alone or in a batch, by the problem's cause.",
		}, []string{"cause"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:                        "leasehold_http_request_seconds",
			Help:                        "Time from a request to the end of its answer, waits included.",
			Buckets:                     prometheus.ExponentialBuckets(0.0005, 4, 10),
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		}, []string{"operation", "status"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "leasehold_http_requests",
			Help: "Requests that are being served.",
		}, []string{"operation"}),
		all: prometheus.NewRegistry(),
	}
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leasehold_http_waiters",
		Help: "Requests that are held back until a lock is granted or something changes, and places in queues that are kept without a request.",
	}, func() float64 { return float64(q.now()) })
	m.all.MustRegister(m.requests, m.renewals, m.duration, m.running, waiting)
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.all, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return m
}

// beginAtZero makes all counters. An alert asks by how much a counter has risen, and for
// Prometheus a counter that appears with the value 1 has not risen.
func (m *metrics) beginAtZero(routes []Route) {
	for i := range routes {
		r := &routes[i]
		for _, status := range r.Success {
			m.requests.WithLabelValues(r.Operation, strconv.Itoa(status), "")
		}
		for _, c := range r.AllCauses() {
			m.requests.WithLabelValues(r.Operation, strconv.Itoa(c.Status), c.Name)
			if r.Operation == "renew" {
				m.renewals.WithLabelValues(c.Name)
			}
		}
	}
	m.renewals.WithLabelValues("")
}

// countRenewal counts the answer to one renewal.
func (m *metrics) countRenewal(e *event) {
	cause, got := "", &e.got
	switch {
	case e.err != nil:
		cause = problemOf(e.err).Cause.Name
	case got.State == driver.Gone && got.Broken:
		cause = Broken.Name
	case got.State == driver.Gone && got.Replayed:
		cause = Released.Name
	case got.State == driver.Gone:
		cause = Gone.Name
	}
	m.renewals.WithLabelValues(cause).Inc()
}

// Metrics returns the metrics of the service, for the program's own registry. They are served at
// /metrics, too, together with the metrics of the process.
func (s *Server) Metrics() prometheus.Collector { return s.metrics.all }

// begin counts an exchange that has begun.
func (m *metrics) begin(x *Exchange) { m.gaugeOf(x).Inc() }

// end counts an exchange that has ended. A client that had gone has the status 0.
func (m *metrics) end(x *Exchange) {
	m.gaugeOf(x).Dec()
	s := m.series.get(outcome{x.Route, x.Status, x.Cause}, func() series { return m.seriesOf(x) })
	s.requests.Inc()
	s.duration.Observe(time.Since(x.Started).Seconds())
}

func (m *metrics) gaugeOf(x *Exchange) prometheus.Gauge {
	return m.gauges.get(x.Route, func() prometheus.Gauge { return m.running.WithLabelValues(x.Operation()) })
}

func (m *metrics) seriesOf(x *Exchange) series {
	status, cause := strconv.Itoa(x.Status), ""
	if x.Cause != nil {
		cause = x.Cause.Name
	}
	return series{m.requests.WithLabelValues(x.Operation(), status, cause), m.duration.WithLabelValues(x.Operation(), status)}
}

// cache keeps the values of a few keys that are read often. A new key replaces the map
// by a copy, so that readers need no lock.
type cache[K comparable, V any] struct {
	all atomic.Pointer[map[K]V]
	mu  sync.Mutex // held while all is replaced
}

// get returns the value of key, which make makes for the first call.
func (c *cache[K, V]) get(key K, make func() V) V {
	if all := c.all.Load(); all != nil {
		if v, ok := (*all)[key]; ok {
			return v
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	more := map[K]V{key: make()}
	if all := c.all.Load(); all != nil {
		maps.Copy(more, *all)
	}
	c.all.Store(&more)
	return more[key]
}

// serveMetrics needs any principal, but no right, since no metric names a lock.
func (s *Server) serveMetrics(w *answer, r *http.Request) error {
	s.metrics.handler.ServeHTTP(w, r)
	return nil
}
