//go:build linux || darwin

package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// sentSpan is one that a collector receives.
type sentSpan struct {
	TraceID, SpanID, ParentSpanID, Name string
	Kind                                int
	Status                              struct{ Code int }
	Attributes                          []struct {
		Key   string
		Value struct{ StringValue, IntValue string }
	}
}

func (s *sentSpan) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.StringValue + a.Value.IntValue
		}
	}
	return ""
}

// sent is the body of a request to a collector.
type sent struct {
	ResourceSpans []struct {
		Resource   sentSpan
		ScopeSpans []struct{ Spans []sentSpan }
	}
}

// collector is one that keeps the spans that it is sent, by their names.
type collector struct {
	url    string
	bodies chan sent
	spans  map[string]sentSpan
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{bodies: make(chan sent, 100), spans: make(map[string]sentSpan)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body sent
		err := json.NewDecoder(r.Body).Decode(&body)
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("X-Tenant") != "a b" {
			t.Errorf("a collector is sent %s %v: %v", r.URL, r.Header, err)
		}
		c.bodies <- body
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

// TestServe_SpansGoFromTheCallerThroughToTheStore has a service send the spans of
// a request that belongs to a trace already.
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
		t.Errorf("the request has the id %q, want that of its trace", id)
	}
	request, store := c.await(t, "POST /v1/locks/{name}"), c.await(t, "store acquire")
	if request.TraceID != traceID || request.ParentSpanID != caller || request.Kind != 2 {
		t.Errorf("the span of the request is not below the caller's: %+v", request)
	}
	if request.attribute("leasehold.key") != "orders/42" || request.attribute("http.response.status_code") != "201" {
		t.Errorf("the span of the request does not tell what it was about: %+v", request)
	}
	if store.TraceID != traceID || store.ParentSpanID != request.SpanID || store.Kind != 3 {
		t.Errorf("the span of the store is not below the request's: %+v", store)
	}
}

// await waits for the span of a name.
func (c *collector) await(t *testing.T, name string) sentSpan {
	t.Helper()
	for timeout := time.After(bound); ; {
		if s, ok := c.spans[name]; ok {
			return s
		}
		select {
		case body := <-c.bodies:
			for _, r := range body.ResourceSpans {
				if r.Resource.attribute("service.name") != "leasehold" || r.Resource.attribute("service.namespace") != "shop" {
					t.Errorf("the spans are those of %+v", r.Resource)
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

func TestServe_RefusesAnExporterThatItDoesNotHave(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318",
		"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon", "OTEL_EXPORTER_OTLP_HEADERS": "secret",
	} {
		cmd := exec.CommandContext(t.Context(), command(t), "serve", "--listen", "127.0.0.1:0", "--store", "memory:")
		cmd.Env = append(cmd.Environ(), "OTEL_TRACES_EXPORTER=otlp", name+"="+value)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 64 || !strings.Contains(string(out), name) || strings.Contains(string(out), "secret") {
			t.Errorf("%s=%s: code %d, want 64 and a word about it: %s", name, value, code, out)
		}
	}
}
