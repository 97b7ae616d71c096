package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	sdkresource "go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold/server"
)

// lastSpans bounds the export of the last spans.
const lastSpans = 2 * time.Second

// traces returns the options that export spans according to the environment variables of
// OpenTelemetry, or no options if these are not set. end exports the last spans.
func traces(log *slog.Logger) (opts []server.Option, end func(), err error) {
	asked, err := spansAsked(os.Getenv)
	if err != nil {
		return nil, nil, usage("%w", err)
	}
	if !asked {
		return nil, func() {}, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("spans were not sent", "error", err) }))
	name := sdkresource.NewSchemaless(attribute.String("service.name", "leasehold"))
	resource, err := sdkresource.Merge(name, sdkresource.Environment())
	if err != nil {
		return nil, nil, usage("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	sender, err := newCollector(os.Getenv)
	if err != nil {
		return nil, nil, usage("%w", err)
	}
	exporter, err := otlptrace.New(noContext, sender)
	if err != nil {
		return nil, nil, fmt.Errorf("spans: %w", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(resource))
	end = func() {
		ctx, cancel := context.WithTimeout(noContext, lastSpans)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last spans were not sent", "error", err)
		}
	}
	const scope = "github.com/leasehold-go/leasehold/server"
	return []server.Option{server.WithTracer(tracer{provider.Tracer(scope)})}, end, nil
}

// spansAsked reports whether the standard environment variables ask for spans:
// OTEL_TRACES_EXPORTER, which is otlp or none, OTEL_SDK_DISABLED, and the endpoint.
func spansAsked(getenv func(string) string) (bool, error) {
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); {
	case strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER=%q is neither otlp nor none", exporter)
	default:
		return exporter != "" || otlpVariable(getenv, "ENDPOINT") != "", nil
	}
}

// tracer makes the spans of the service, with the names of OpenTelemetry's conventions
// for HTTP.
type tracer struct{ trace.Tracer }

// Request implements [server.Tracer]. The parent is the caller's span.
func (t tracer) Request(r *http.Request, x *server.Exchange) (context.Context, func()) {
	if x.Route != nil && x.Route.Probe {
		return r.Context(), func() {}
	}
	name, attrs := r.Method, []attribute.KeyValue{attribute.String("http.request.method", r.Method)}
	if x.Route != nil {
		name += " " + x.Route.Path
		attrs = append(attrs, attribute.String("http.route", x.Route.Path))
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := t.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(x.Started), trace.WithAttributes(attrs...))
	x.Trace = span.SpanContext().TraceID().String()
	return ctx, func() {
		if x.Name != "" { // the name may be in the body
			span.SetAttributes(attribute.String("leasehold.key", x.Name))
		}
		if x.Status != 0 { // it is 0 if the client has disconnected
			span.SetAttributes(attribute.Int("http.response.status_code", x.Status))
		}
		if x.Cause != nil {
			span.SetAttributes(attribute.String("leasehold.cause", x.Cause.Name))
		}
		if x.Status >= http.StatusInternalServerError && x.Cause != nil {
			span.SetStatus(codes.Error, x.Cause.Title)
		}
		span.End()
	}
}

// Store implements [server.Tracer].
func (t tracer) Store(ctx context.Context, verb string) (context.Context, func(error)) {
	ctx, span := t.Start(ctx, "store "+verb, trace.WithSpanKind(trace.SpanKindClient))
	return ctx, func(err error) {
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}
