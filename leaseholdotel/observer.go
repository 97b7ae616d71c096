package leaseholdotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold"
)

// observer turns what it is told into spans and metrics. The spans travel in
// the contexts.
type observer struct {
	tracer trace.Tracer
	meters *meters
	keys   bool
}

// callerKey carries the span of the call that asked for the lock, which is the parent of
// the lease's span.
type callerKey struct{}

func (o *observer) acquire(ctx context.Context, l leasehold.LockInfo) context.Context {
	ctx = context.WithValue(ctx, callerKey{}, trace.SpanFromContext(ctx))
	ctx, _ = o.tracer.Start(ctx, "acquire "+l.Class, trace.WithSpanKind(trace.SpanKindClient), o.about(&l))
	return ctx
}

// about describes the lock of a span.
func (o *observer) about(l *leasehold.LockInfo) trace.SpanStartOption {
	attrs := []attribute.KeyValue{class.String(l.Class), kind.String(l.Kind())}
	if o.keys {
		attrs = append(attrs, attribute.String("leasehold.key", l.Key))
	}
	if l.Limit > 0 {
		attrs = append(attrs, attribute.Int("leasehold.limit", l.Limit), attribute.Int("leasehold.permits", l.Weight))
	}
	return trace.WithAttributes(attrs...)
}

func (o *observer) waiting(ctx context.Context, e leasehold.WaitingInfo) {
	o.meters.waiters.Add(ctx, 1, o.meters.of(&e.LockInfo))
	trace.SpanFromContext(ctx).AddEvent("queued", trace.WithAttributes(
		attribute.Int("leasehold.position", e.Position),
		attribute.String("leasehold.holder", e.Holder),
	))
}

func (o *observer) acquired(ctx context.Context, e leasehold.AcquiredInfo) context.Context {
	o.meters.acquired(ctx, &e)
	asking := trace.SpanFromContext(ctx)
	asking.SetAttributes(outcome.String(e.Outcome()))
	if e.Err != nil {
		if !errors.Is(e.Err, leasehold.ErrHeld) {
			asking.SetStatus(codes.Error, e.Err.Error())
		}
		asking.End()
		return ctx
	}
	asking.AddEvent("granted")
	asking.End()
	caller, _ := ctx.Value(callerKey{}).(trace.Span)
	ctx, _ = o.tracer.Start(trace.ContextWithSpan(ctx, caller), "hold "+e.Class, o.about(&e.LockInfo),
		trace.WithLinks(trace.Link{SpanContext: asking.SpanContext()}),
		trace.WithAttributes(attribute.String("leasehold.lease", e.ID), attribute.Int64("leasehold.token", e.Token)))
	return ctx
}

func (o *observer) renewed(ctx context.Context, e leasehold.RenewedInfo) {
	o.meters.renewals.Add(ctx, 1, o.meters.of(&e.LockInfo, outcome.String(e.Outcome())))
	attrs := []attribute.KeyValue{outcome.String(e.Outcome())}
	if e.Err != nil {
		attrs = append(attrs, failure.String(e.Err.Error()))
	}
	trace.SpanFromContext(ctx).AddEvent("renewed", trace.WithAttributes(attrs...))
}

func (o *observer) ended(ctx context.Context, e leasehold.EndedInfo) {
	o.meters.ended(ctx, &e)
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(reason.String(e.Reason()))
	if e.Lost() {
		span.AddEvent("lost", trace.WithAttributes(reason.String(e.Reason())))
		span.SetStatus(codes.Error, e.Cause.Error())
	}
	span.End()
}

// released makes a span of what is over already.
func (o *observer) released(ctx context.Context, e leasehold.ReleasedInfo) {
	o.meters.released(ctx, &e)
	end := time.Now()
	_, span := o.tracer.Start(ctx, "release "+e.Class, trace.WithSpanKind(trace.SpanKindClient), o.about(&e.LockInfo),
		trace.WithTimestamp(end.Add(-e.Took)), trace.WithAttributes(outcome.String(e.Outcome())))
	if e.Err != nil {
		span.SetStatus(codes.Error, e.Err.Error())
	}
	span.End(trace.WithTimestamp(end))
}
