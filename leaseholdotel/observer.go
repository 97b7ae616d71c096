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

// observer records the events of locks as spans and metrics. Contexts carry the spans under the
// observer as their key, since the active span may belong to another observer.
type observer struct {
	tracer trace.Tracer
	meters *meters
	keys   bool
}

// stage is the span of a call, or of its lease.
type stage struct {
	trace.Span
	caller trace.Span // of the call that took the lock; it is the parent of the lease's span
}

// stage returns the span of the present call or lease.
func (o *observer) stage(ctx context.Context) stage {
	if s, ok := ctx.Value(o).(stage); ok {
		return s
	}
	none := trace.SpanFromContext(context.Background())
	return stage{none, none}
}

func (o *observer) acquire(ctx context.Context, l leasehold.LockInfo) context.Context {
	caller := trace.SpanFromContext(ctx)
	ctx, asking := o.tracer.Start(ctx, "acquire "+l.Class, trace.WithSpanKind(trace.SpanKindClient), o.about(&l))
	return context.WithValue(ctx, o, stage{asking, caller})
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
	o.stage(ctx).AddEvent("queued", trace.WithAttributes(
		attribute.Int("leasehold.position", e.Position),
		attribute.String("leasehold.holder", e.Holder),
	))
}

func (o *observer) acquired(ctx context.Context, e leasehold.AcquiredInfo) context.Context {
	o.meters.acquired(ctx, &e)
	asking := o.stage(ctx)
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
	ctx, hold := o.tracer.Start(trace.ContextWithSpan(ctx, asking.caller), "hold "+e.Class, o.about(&e.LockInfo),
		trace.WithLinks(trace.Link{SpanContext: asking.SpanContext()}),
		trace.WithAttributes(attribute.String("leasehold.lease", e.ID), attribute.Int64("leasehold.token", e.Token)))
	return context.WithValue(ctx, o, stage{hold, asking.caller})
}

func (o *observer) renewed(ctx context.Context, e leasehold.RenewedInfo) {
	o.meters.renewals.Add(ctx, 1, o.meters.of(&e.LockInfo, outcome.String(e.Outcome())))
	attrs := []attribute.KeyValue{outcome.String(e.Outcome())}
	if e.Err != nil {
		attrs = append(attrs, failure.String(e.Err.Error()))
	}
	o.stage(ctx).AddEvent("renewed", trace.WithAttributes(attrs...))
}

func (o *observer) ended(ctx context.Context, e leasehold.EndedInfo) {
	o.meters.ended(ctx, &e)
	span := o.stage(ctx)
	span.SetAttributes(reason.String(e.Reason()))
	if e.Lost() {
		span.AddEvent("lost", trace.WithAttributes(reason.String(e.Reason())))
		span.SetStatus(codes.Error, e.Cause.Error())
	}
	span.End()
}

// released makes a span of a release, which has already ended.
func (o *observer) released(ctx context.Context, e leasehold.ReleasedInfo) {
	o.meters.released(ctx, &e)
	end := time.Now()
	_, span := o.tracer.Start(trace.ContextWithSpan(ctx, o.stage(ctx).Span), "release "+e.Class, trace.WithSpanKind(trace.SpanKindClient), o.about(&e.LockInfo),
		trace.WithTimestamp(end.Add(-e.Took)), trace.WithAttributes(outcome.String(e.Outcome())))
	if e.Err != nil {
		span.SetStatus(codes.Error, e.Err.Error())
	}
	span.End(trace.WithTimestamp(end))
}
