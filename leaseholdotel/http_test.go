package leaseholdotel_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// tracing sends the trace along, as an instrumented HTTP client does.
type tracing struct{ http.RoundTripper }

func (t tracing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(r.Header))
	return t.RoundTripper.RoundTrip(r)
}

// traceable takes the trace over, as an instrumented HTTP server does.
func traceable(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

func TestTrace_GoesOverHTTPThroughToTheStoreAndIntoTheLog(t *testing.T) {
	var l *lab
	logged := make(chan string, 10) // operations and their traces
	service, err := server.New(traced{memdriver.New(), func() trace.Tracer { return l.tracer }},
		server.WithObserver(func(_ *http.Request, x *server.Exchange) { logged <- x.Operation() + " " + x.Trace }))
	must(t, err)
	h := httptest.NewServer(traceable(service))
	t.Cleanup(func() {
		h.CloseClientConnections()
		if err := service.Close(); err != nil {
			t.Error(err)
		}
		h.Close()
	})
	remote, err := httpdriver.Open(h.URL, httpdriver.WithClient(&http.Client{Transport: tracing{http.DefaultTransport}}))
	must(t, err)
	l = newLab(t, remote, leasehold.Observer{})
	ctx, caller := l.tracer.Start(t.Context(), "caller")
	lease := l.lock(ctx, t, "orders/42")
	must(t, lease.Release())
	caller.End()
	id := caller.SpanContext().TraceID()
	for name, parent := range map[string]string{"store acquire": "acquire orders", "store release": "hold orders"} {
		s := l.span(t, name)
		if s.SpanContext.TraceID() != id || s.Parent.SpanID() != l.span(t, parent).SpanContext.SpanID() {
			t.Errorf("%s is not below %s", name, parent)
		}
	}
	for _, operation := range []string{"acquire", "release"} {
		if got := <-logged; got != operation+" "+id.String() {
			t.Errorf("%s is logged as %q, want the trace %s", operation, got, id)
		}
	}
}
