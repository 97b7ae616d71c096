package leaseholdotel_test

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	nometric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	notrace "go.opentelemetry.io/otel/trace/noop"
)

// recorder keeps the spans that end and adds up the measurements. It stands in for
// the SDK of OpenTelemetry, which the module does not require.
type recorder struct {
	notrace.TracerProvider
	nometric.MeterProvider

	mu    sync.Mutex
	begun uint64
	ended []*span
	sums  map[string]float64 // by instrument and attributes, without the class orders and the kind mutex
}

func (r *recorder) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{r: r} }

func (r *recorder) Meter(string, ...metric.MeterOption) metric.Meter { return meter{r: r} }

// forget forgets the spans that have ended.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = nil
}

// spans returns the ended spans.
func (r *recorder) spans() []*span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ended)
}

// measured returns the sums.
func (r *recorder) measured() map[string]float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.sums)
}

func (r *recorder) measure(name string, attrs attribute.Set, n float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, kv := range attrs.ToSlice() {
		if value := kv.Value.AsString(); value != "orders" && value != "mutex" {
			name += " " + strings.TrimPrefix(string(kv.Key), "leasehold.") + "=" + value
		}
	}
	if r.sums == nil {
		r.sums = make(map[string]float64)
	}
	r.sums[name] += n
}

type tracer struct {
	notrace.Tracer
	r *recorder
}

// Start begins a span of the parent's trace, or of a new one.
func (t tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	c := trace.NewSpanStartConfig(opts...)
	parent := trace.SpanContextFromContext(ctx)
	s := &span{
		r: t.r, name: name, parent: parent.SpanID(), start: timeOf(c.Timestamp()), attrs: c.Attributes(), links: c.Links(),
	}
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.r.begun++
	is := trace.SpanContextConfig{TraceID: parent.TraceID(), TraceFlags: trace.FlagsSampled}
	binary.BigEndian.PutUint64(is.SpanID[:], t.r.begun)
	if !parent.IsValid() {
		binary.BigEndian.PutUint64(is.TraceID[:], t.r.begun)
	}
	s.is = trace.NewSpanContext(is)
	return trace.ContextWithSpan(ctx, s), s
}

// timeOf returns the time that an option states, or else the present time.
func timeOf(stated time.Time) time.Time {
	if stated.IsZero() {
		return time.Now()
	}
	return stated
}

// span records until it ends.
type span struct {
	notrace.Span
	r *recorder

	name        string
	is          trace.SpanContext
	parent      trace.SpanID
	start, end  time.Time
	attrs       []attribute.KeyValue
	events      []string
	links       []trace.Link
	status      codes.Code
	description string
}

func (s *span) SpanContext() trace.SpanContext { return s.is }

// record changes a span that has not ended.
func (s *span) record(change func()) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.end.IsZero() {
		change()
	}
}

func (s *span) AddEvent(name string, _ ...trace.EventOption) {
	s.record(func() { s.events = append(s.events, name) })
}

func (s *span) SetAttributes(attrs ...attribute.KeyValue) {
	s.record(func() { s.attrs = append(s.attrs, attrs...) })
}

func (s *span) SetStatus(code codes.Code, description string) {
	s.record(func() { s.status, s.description = code, description })
}

func (s *span) End(opts ...trace.SpanEndOption) {
	s.record(func() {
		c := trace.NewSpanEndConfig(opts...)
		s.end = timeOf(c.Timestamp())
		s.r.ended = append(s.r.ended, s)
	})
}

type meter struct {
	nometric.Meter
	r *recorder
}

func (m meter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return instrument{r: m.r, name: name}, nil
}

func (m meter) Int64UpDownCounter(name string, _ ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	return instrument{r: m.r, name: name}, nil
}

func (m meter) Float64Histogram(name string, _ ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return instrument{r: m.r, name: name}, nil
}

// instrument is one of each kind.
type instrument struct {
	nometric.Int64Counter
	nometric.Int64UpDownCounter
	nometric.Float64Histogram
	r    *recorder
	name string
}

func (instrument) Enabled(context.Context) bool { return true }

func (i instrument) Add(_ context.Context, n int64, opts ...metric.AddOption) {
	i.r.measure(i.name, metric.NewAddConfig(opts).Attributes(), float64(n))
}

func (i instrument) Record(_ context.Context, x float64, opts ...metric.RecordOption) {
	i.r.measure(i.name, metric.NewRecordConfig(opts).Attributes(), x)
}
