// Package otlp sends OpenTelemetry spans to a collector, by OTLP over HTTP with
// bodies in JSON. The exporter of OpenTelemetry would bring gRPC, and its version,
// into every program that uses the library.
package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Exporter sends spans. It is safe for concurrent use.
type Exporter struct {
	url    string
	header http.Header
	client *http.Client
}

var _ sdk.SpanExporter = (*Exporter)(nil)

// Of OpenTelemetry's specification, for all signals and for traces alone.
const (
	defaultEndpoint = "http://localhost:4318"
	tracesPath      = "/v1/traces"
	defaultTimeout  = 10 * time.Second
)

// New returns the exporter that the standard environment variables ask for, nil
// if they ask for none: OTEL_TRACES_EXPORTER, which is otlp or none,
// OTEL_SDK_DISABLED, and OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, _TIMEOUT and
// _PROTOCOL, each also with TRACES_ before its last word. getenv is [os.Getenv].
// An error says which of them is not understood.
func New(getenv func(string) string) (*Exporter, error) {
	last := func(word string) string {
		if v := getenv("OTEL_EXPORTER_OTLP_TRACES_" + word); v != "" {
			return v
		}
		return getenv("OTEL_EXPORTER_OTLP_" + word)
	}
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); {
	case strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return nil, nil
	case exporter == "" && last("ENDPOINT") == "":
		return nil, nil
	case exporter != "" && exporter != "otlp":
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER=%q is neither otlp nor none", exporter)
	}
	if protocol := last("PROTOCOL"); protocol != "" && !strings.HasPrefix(protocol, "http/") {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%q is not spoken, but http/json is", protocol)
	}
	address, err := endpoint(getenv)
	if err != nil {
		return nil, err
	}
	header, err := headers(last("HEADERS"))
	if err != nil {
		return nil, err
	}
	timeout, err := patience(last("TIMEOUT"))
	if err != nil {
		return nil, err
	}
	return &Exporter{url: address, header: header, client: &http.Client{Timeout: timeout}}, nil
}

// endpoint is where spans go: that of traces as it stands, or a path below that of
// all signals.
func endpoint(getenv func(string) string) (string, error) {
	name := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	text := getenv(name)
	if text == "" {
		name = "OTEL_EXPORTER_OTLP_ENDPOINT"
		if text = getenv(name); text == "" {
			text = defaultEndpoint
		}
		text = strings.TrimSuffix(text, "/") + tracesPath
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%s is not an http or https URL", name) // it may hold a password
	}
	return text, nil
}

// headers are those of a list of names and percent-encoded values.
func headers(text string) (http.Header, error) {
	h := make(http.Header)
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || strings.TrimSpace(name) == "" {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS is not of the form name=value,name=value")
		}
		h.Set(strings.TrimSpace(name), value)
	}
	return h, nil
}

func patience(text string) (time.Duration, error) {
	if text == "" {
		return defaultTimeout, nil
	}
	ms, err := strconv.ParseUint(text, 10, 31)
	if err != nil || ms == 0 {
		return 0, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT=%q is not a number of milliseconds above 0", text)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

// ExportSpans implements [sdk.SpanExporter]. Spans that a collector does not take
// are lost: there are more to come.
func (e *Exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	body, err := json.Marshal(request(spans))
	if err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	maps.Copy(r.Header, e.header)
	r.Header.Set("Content-Type", "application/json")
	res, err := e.client.Do(r)
	if err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer)) // so that the connection can be used again
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("otlp: the collector answers %s to %d spans", res.Status, len(spans))
	}
	return nil
}

// Shutdown implements [sdk.SpanExporter].
func (e *Exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}
