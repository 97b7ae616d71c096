package leaseholdotel_test

import (
	"context"
	"encoding/binary"
	"slices"
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

	mu       sync.Mutex
	ids      uint64
	ended    []spanStub
	measured []measurement
}

var (
	_ trace.TracerProvider = (*recorder)(nil)
	_ metric.MeterProvider = (*recorder)(nil)
)

func (r *recorder) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{r: r} }

func (r *recorder) Meter(string, ...metric.MeterOption) metric.Meter { return meter{r: r} }

// forget forgets the spans that have ended.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = nil
}

// spans returns the ended spans.
func (r *recorder) spans() []spanStub {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ended)
}

// child is the context of a new span: of the parent's trace, or of a new one.
func (r *recorder) child(parent trace.SpanContext) trace.SpanContext {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids++
	c := trace.SpanContextConfig{TraceID: parent.TraceID(), TraceFlags: trace.FlagsSampled}
	binary.BigEndian.PutUint64(c.SpanID[:], r.ids)
	if !parent.IsValid() {
		binary.BigEndian.PutUint64(c.TraceID[:], r.ids)
	}
	return trace.NewSpanContext(c)
}

// spanStub is an ended span.
type spanStub struct {
	Name                string
	SpanContext, Parent trace.SpanContext
	StartTime, EndTime  time.Time
	Attributes          []attribute.KeyValue
	Events              []struct{ Name string }
	Links               []trace.Link
	Status              struct {
		Code        codes.Code
		Description string
	}
}

type tracer struct {
	notrace.Tracer
	r *recorder
}

func (t tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	c := trace.NewSpanStartConfig(opts...)
	s := &span{r: t.r, stub: spanStub{Name: name, Parent: trace.SpanContextFromContext(ctx), StartTime: c.Timestamp(), Attributes: c.Attributes(), Links: c.Links()}}
	s.stub.SpanContext = t.r.child(s.stub.Parent)
	if s.stub.StartTime.IsZero() {
		s.stub.StartTime = time.Now()
	}
	return trace.ContextWithSpan(ctx, s), s
}

// span records until it ends.
type span struct {
	notrace.Span
	r *recorder

	mu   sync.Mutex
	stub spanStub
	over bool
}

func (s *span) SpanContext() trace.SpanContext { return s.stub.SpanContext }

func (s *span) IsRecording() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.over
}

// record changes a span that has not ended.
func (s *span) record(change func(*spanStub)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		change(&s.stub)
	}
}

func (s *span) AddEvent(name string, _ ...trace.EventOption) {
	s.record(func(stub *spanStub) { stub.Events = append(stub.Events, struct{ Name string }{name}) })
}

func (s *span) SetAttributes(attrs ...attribute.KeyValue) {
	s.record(func(stub *spanStub) { stub.Attributes = append(stub.Attributes, attrs...) })
}

func (s *span) SetStatus(code codes.Code, description string) {
	s.record(func(stub *spanStub) { stub.Status.Code, stub.Status.Description = code, description })
}

func (s *span) End(opts ...trace.SpanEndOption) {
	c := trace.NewSpanEndConfig(opts...)
	s.record(func(stub *spanStub) {
		s.over = true
		if stub.EndTime = c.Timestamp(); stub.EndTime.IsZero() {
			stub.EndTime = time.Now()
		}
		s.r.mu.Lock()
		defer s.r.mu.Unlock()
		s.r.ended = append(s.r.ended, *stub)
	})
}

// measurement is one, of an instrument with a name.
type measurement struct {
	name  string
	attrs attribute.Set
	n     float64
}

func (r *recorder) measure(name string, attrs attribute.Set, n float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measured = append(r.measured, measurement{name, attrs, n})
}

// measurements returns all, in their order.
func (r *recorder) measurements() []measurement {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.measured)
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
