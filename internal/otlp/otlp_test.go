package otlp_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold/internal/otlp"
)

// env is an environment.
type env map[string]string

func (e env) get(name string) string { return e[name] }

func TestNew_IsOffUnlessItIsAskedFor(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, row := range []struct {
		env env
		on  bool
	}{
		{env{}, false},
		{env{"OTEL_EXPORTER_OTLP_HEADERS": "a=b"}, false},
		{env{endpoint: "http://c", "OTEL_TRACES_EXPORTER": "none"}, false},
		{env{endpoint: "http://c", "OTEL_SDK_DISABLED": "TRUE"}, false},
		{env{endpoint: "http://c"}, true},
		{env{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/v1/traces"}, true},
		{env{"OTEL_TRACES_EXPORTER": "otlp"}, true},
		{env{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, true},
	} {
		if e, err := otlp.New(row.env.get); err != nil || (e != nil) != row.on {
			t.Errorf("%v: an exporter: %t, %v, want %t", row.env, e != nil, err, row.on)
		}
	}
}

// TestExporter_WritesWhatTheProtocolAsksFor compares a body with what the
// protocol's mapping to JSON says: its own numbers for codes, ids in hexadecimal,
// numbers of 64 bits as strings.
func TestExporter_WritesWhatTheProtocolAsksFor(t *testing.T) {
	var path, text string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		path, text = r.URL.Path, string(body)
	}))
	defer s.Close()
	e, err := otlp.New(env{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": s.URL + "/elsewhere"}.get)
	if err != nil {
		t.Fatal(err)
	}
	p := sdk.NewTracerProvider(sdk.WithSyncer(e), sdk.WithResource(nil))
	at := trace.WithTimestamp(time.Unix(1, 5))
	_, span := p.Tracer("scope", trace.WithInstrumentationVersion("v1")).Start(t.Context(), "work", at, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.Int("n", 1<<53+1), attribute.Bool("b", false), attribute.Float64("f", 0.5), attribute.String("s", "")))
	span.AddEvent("seen", at)
	span.SetStatus(codes.Error, "broken")
	span.End(at)
	if err := p.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	sc := span.SpanContext()
	want := `{"resourceSpans":[{"resource":{},"scopeSpans":[{"scope":{"name":"scope","version":"v1"},"spans":[{` +
		`"traceId":"` + sc.TraceID().String() + `","spanId":"` + sc.SpanID().String() + `","name":"work","kind":3,` +
		`"startTimeUnixNano":"1000000005","endTimeUnixNano":"1000000005","attributes":[{"key":"n","value":{"intValue":"9007199254740993"}},` +
		`{"key":"b","value":{"boolValue":false}},{"key":"f","value":{"doubleValue":0.5}},{"key":"s","value":{"stringValue":""}}],` +
		`"events":[{"timeUnixNano":"1000000005","name":"seen"}],"status":{"code":2,"message":"broken"}}]}]}]}`
	if path != "/elsewhere" || !json.Valid([]byte(text)) || text != want {
		t.Errorf("to %s:\n%s\nwant\n%s", path, text, want)
	}
}

func TestExporter_TellsOfACollectorThatRefuses(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	e, err := otlp.New(env{"OTEL_EXPORTER_OTLP_ENDPOINT": s.URL}.get)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ExportSpans(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("%v, want the collector's answer", err)
	}
	s.Close()
	if err := e.ExportSpans(t.Context(), nil); err == nil || errors.Is(err, http.ErrServerClosed) {
		t.Errorf("%v, want that nobody listens", err)
	}
}
