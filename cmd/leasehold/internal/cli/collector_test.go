package cli

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// send uploads one group of spans to a collector with the handler.
func send(t *testing.T, env map[string]string, handler http.HandlerFunc) error {
	t.Helper()
	s := httptest.NewServer(handler)
	defer s.Close()
	c, err := newCollector(func(name string) string {
		return strings.ReplaceAll(env[name], "HOST", s.Listener.Addr().String())
	})
	if err != nil {
		t.Fatal(err)
	}
	return c.UploadTraces(t.Context(), []*tracepb.ResourceSpans{{SchemaUrl: "here"}})
}

func TestCollector_RepeatsWhatTimeCanHeal(t *testing.T) {
	env := map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://HOST/own/path", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
	var asked atomic.Int32
	err := send(t, env, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		zipped, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		text, _ := io.ReadAll(zipped)
		var data tracepb.TracesData
		if err := proto.Unmarshal(text, &data); err != nil || len(data.ResourceSpans) != 1 || r.URL.Path != "/own/path" {
			t.Errorf("sent to %s: %v, %v", r.URL, &data, err)
		}
	})
	if err != nil || asked.Load() != 2 {
		t.Errorf("%v after %d requests, want no error after 2", err, asked.Load())
	}
}

func TestCollector_SaysWhatItWasRefusedAndNoPassword(t *testing.T) {
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:secret@HOST/"}
	for says, handler := range map[string]http.HandlerFunc{
		"who are you": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who are you", http.StatusUnauthorized) },
		"302":         func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"404":         http.NotFound,
	} {
		if err := send(t, env, handler); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

func TestCollector_RefusesWhatItCannotDo(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, row := range []struct{ word, value, says string }{
		{"COMPRESSION", "brotli", "COMPRESSION"}, {"ENDPOINT", "collector:4318", "ENDPOINT"}, {"PROTOCOL", "grpc", "PROTOCOL"},
		{"TIMEOUT", "soon", "TIMEOUT"}, {"CERTIFICATE", missing, "CERTIFICATE"}, {"CLIENT_KEY", missing, "CLIENT_CERTIFICATE and _KEY"},
	} {
		env := map[string]string{"OTEL_EXPORTER_OTLP_" + row.word: row.value}
		_, err := newCollector(func(name string) string { return env[name] })
		if err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_"+row.says) {
			t.Errorf("%s=%s: %v", row.word, row.value, err)
		}
	}
}

func TestSpans_AreOffUnlessTheyAreAskedFor(t *testing.T) {
	type env map[string]string
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
		on, err := spansAsked(func(name string) string { return row.env[name] })
		if err != nil || on != row.on {
			t.Errorf("%v: spans are sent: %t, %v, want %t", row.env, on, err, row.on)
		}
	}
}
