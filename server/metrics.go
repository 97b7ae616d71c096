package server

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what /metrics tells. No label names a lock or a client.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	running  *prometheus.GaugeVec
	waiting  prometheus.GaugeFunc
	handler  http.Handler

	mu    sync.RWMutex
	known map[outcome]series
}

// outcome is what a request counts as.
type outcome struct {
	operation string
	status    int
	cause     *Cause
}

// series are where it counts. They are looked up by their labels once.
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
		waiting: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "leasehold_http_waiters",
			Help: "Requests whose answer is held back until a lock is granted or something changes.",
		}, func() float64 { return float64(q.now()) }),
		known: make(map[outcome]series),
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return m
}

// Metrics returns the service's metrics, for a registry of one's own. They are
// served at /metrics, too, together with those of the process.
func (s *Server) Metrics() prometheus.Collector { return s.metrics }

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.duration, m.running, m.waiting}
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(to)
	}
}

// begin counts an exchange that has begun, until it is counted down.
func (m *metrics) begin(x *Exchange) prometheus.Gauge {
	running := m.running.WithLabelValues(x.Operation())
	running.Inc()
	return running
}

// observe counts an exchange that has ended. A client that had gone has the
// status 0.
func (m *metrics) observe(x *Exchange) {
	s := m.series(outcome{x.Operation(), x.Status, x.Cause})
	s.requests.Inc()
	s.duration.Observe(time.Since(x.Started).Seconds())
}

func (m *metrics) series(o outcome) series {
	m.mu.RLock()
	s, ok := m.known[o]
	m.mu.RUnlock()
	if ok {
		return s
	}
	status, cause := strconv.Itoa(o.status), ""
	if o.cause != nil {
		cause = o.cause.Name
	}
	s = series{m.requests.WithLabelValues(o.operation, status, cause), m.duration.WithLabelValues(o.operation, status)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[o] = s
	return s
}

// serveMetrics needs any principal, but no right: nothing is named.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	s.metrics.handler.ServeHTTP(w, r)
	return nil
}
