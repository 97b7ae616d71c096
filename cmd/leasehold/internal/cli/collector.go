package cli

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// collector sends spans to a collector of OpenTelemetry, in protobuf over HTTP. It is the
// transport under OpenTelemetry's own exporter. The ready-made transport, otlptracehttp
// 1.47.0, imports gRPC without using it. gRPC imports html/template, for which the linker
// keeps every method of every type: the stripped binary was 34 MB instead of 19. Use
// otlptracehttp again when that is fixed:
// https://github.com/open-telemetry/opentelemetry-go/issues/2579
type collector struct {
	url    string
	header http.Header
	zipped bool
	client *http.Client
}

var _ otlptrace.Client = (*collector)(nil)

const (
	defaultCollector = "http://localhost:4318"
	collectorTimeout = 10 * time.Second // of one request
	maxCollected     = 4 << 10          // bytes of an answer, for the log
)

// newCollector returns the collector that the environment variables describe, which
// checkVariables has checked. It reads the files of certificates.
func newCollector(getenv func(string) string) (*collector, error) {
	c := &collector{url: collectorURL(getenv), header: collectorHeader(getenv)}
	switch compression := otlpVariable(getenv, "COMPRESSION"); compression {
	case "gzip":
		c.zipped = true
		c.header.Set("Content-Encoding", "gzip")
	case "", "none":
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION=%q is neither gzip nor none", compression)
	}
	config, err := collectorTLS(getenv)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = config
	timeout := collectorTimeout
	if ms, err := strconv.Atoi(otlpVariable(getenv, "TIMEOUT")); err == nil {
		timeout = time.Duration(ms) * time.Millisecond
	}
	c.client = &http.Client{Transport: transport, Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the headers may hold a password for this collector
	}}
	return c, nil
}

// collectorURL returns the URL for spans: the endpoint for traces without a change, or the
// endpoint for all signals with the path for traces.
func collectorURL(getenv func(string) string) string {
	if endpoint := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); endpoint != "" {
		return endpoint
	}
	endpoint := cmp.Or(getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), defaultCollector)
	return strings.TrimSuffix(endpoint, "/") + "/v1/traces"
}

func collectorHeader(getenv func(string) string) http.Header {
	header := http.Header{"User-Agent": {"leasehold"}}
	for pair := range strings.SplitSeq(otlpVariable(getenv, "HEADERS"), ",") {
		name, value, _ := strings.Cut(pair, "=")
		value, _ = url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); name != "" {
			header.Set(name, value)
		}
	}
	header.Set("Content-Type", "application/x-protobuf")
	return header
}

// collectorTLS returns nil if no variable names a certificate.
func collectorTLS(getenv func(string) string) (*tls.Config, error) {
	ca, cert, key := otlpVariable(getenv, "CERTIFICATE"), otlpVariable(getenv, "CLIENT_CERTIFICATE"), otlpVariable(getenv, "CLIENT_KEY")
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s has no certificate in PEM", ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and _KEY: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Start implements [otlptrace.Client]. It does not connect: the first spans do.
func (c *collector) Start(context.Context) error { return nil }

// Stop implements [otlptrace.Client].
func (c *collector) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// UploadTraces implements [otlptrace.Client]. It retries after temporary errors until ctx ends.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// A request for export has the same form, but its package brings gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err == nil && c.zipped {
		body, err = zip(body)
	}
	if err != nil {
		return err
	}
	_, err = backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, c.send(ctx, body) })
	return err
}

func zip(body []byte) ([]byte, error) {
	var small bytes.Buffer
	w := gzip.NewWriter(&small)
	_, err := w.Write(body)
	err = errors.Join(err, w.Close())
	return small.Bytes(), err
}

// send sends a request once. The caller may retry unless the error is a [backoff.PermanentError].
func (c *collector) send(ctx context.Context, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(storeurl.Unquoted(err))
	}
	r.Header = c.header.Clone()
	res, err := c.client.Do(r)
	if err != nil {
		return storeurl.Unquoted(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxCollected)) // for the log
	switch res.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return nil // the collector has accepted the spans, or has rejected some of them for good
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && seconds > 0 {
			return backoff.RetryAfter(seconds)
		}
		return c.refused(res, text)
	}
	return backoff.Permanent(c.refused(res, text))
}

func (c *collector) refused(res *http.Response, text []byte) error {
	return fmt.Errorf("the collector at %s answers %s: %q", storeurl.Redact(res.Request.URL.String()), res.Status, bytes.TrimSpace(text))
}
