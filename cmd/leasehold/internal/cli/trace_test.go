//go:build linux || darwin

package cli_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spanCollector is a collector that stores the spans it receives.
type spanCollector struct {
	url    string
	bodies chan *tracepb.TracesData
	spans  map[string]*tracepb.Span
}

func startCollector(t *testing.T) *spanCollector {
	t.Helper()
	c := &spanCollector{bodies: make(chan *tracepb.TracesData, 100), spans: make(map[string]*tracepb.Span)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := new(tracepb.TracesData)
		raw, err := io.ReadAll(r.Body)
		err = errors.Join(err, proto.Unmarshal(raw, body))
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || r.Header.Get("X-Tenant") != "a b" {
			t.Errorf("a collector is sent %s %v: %v", r.URL, r.Header, err)
		}
		c.bodies <- body
		w.Header().Set("Content-Type", "application/x-protobuf") // an empty answer accepts everything
	}))
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

// TestServe_SpansGoFromTheCallerThroughToTheStore checks the spans that a service sends for
// a request with a trace of the caller.
func TestServe_SpansGoFromTheCallerThroughToTheStore(t *testing.T) {
	const traceID, caller = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	c := startCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.url)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=shop")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	s := startService(t, "--store", "memory:")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/locks/orders%2F42", strings.NewReader(`{"leaseId":"a1"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Traceparent", "00-"+traceID+"-"+caller+"-01")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if id := res.Header.Get("X-Request-Id"); id != traceID {
		t.Errorf("the request has the id %q, want the id of its trace", id)
	}
	request, store := c.await(t, "POST /v1/locks/{name}"), c.await(t, "store acquire")
	if hex.EncodeToString(request.TraceId) != traceID || hex.EncodeToString(request.ParentSpanId) != caller || request.Kind != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("the span of the request is not below the caller's: %+v", request)
	}
	if attribute(request.Attributes, "leasehold.key") != "orders/42" || attribute(request.Attributes, "http.response.status_code") != "201" {
		t.Errorf("the span of the request lacks the attributes of the request: %+v", request)
	}
	if !bytes.Equal(store.TraceId, request.TraceId) || !bytes.Equal(store.ParentSpanId, request.SpanId) || store.Kind != tracepb.Span_SPAN_KIND_CLIENT {
		t.Errorf("the span of the store is not below the request's: %+v", store)
	}
}

// await waits for a span with the name.
func (c *spanCollector) await(t *testing.T, name string) *tracepb.Span {
	t.Helper()
	for timeout := time.After(bound); ; {
		if s, ok := c.spans[name]; ok {
			return s
		}
		select {
		case body := <-c.bodies:
			for _, r := range body.ResourceSpans {
				if of := r.Resource.Attributes; attribute(of, "service.name") != "leasehold" || attribute(of, "service.namespace") != "shop" {
					t.Errorf("the spans have the resource %+v", r.Resource)
				}
				for _, s := range r.ScopeSpans {
					for _, span := range s.Spans {
						c.spans[span.Name] = span
					}
				}
			}
		case <-timeout:
			t.Fatalf("no span %q", name)
		}
	}
}

// attribute returns the value of a key as text.
func attribute(all []*common.KeyValue, key string) string {
	for _, kv := range all {
		if kv.Key != key {
			continue
		}
		if n, ok := kv.Value.Value.(*common.AnyValue_IntValue); ok {
			return strconv.FormatInt(n.IntValue, 10)
		}
		return kv.Value.GetStringValue()
	}
	return ""
}
