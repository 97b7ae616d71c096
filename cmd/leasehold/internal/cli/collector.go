package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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

// newCollector returns the collector that the environment variables describe. It reads the
// files of certificates. The error names a variable with an invalid value, which the exporter
// itself would replace by its default.
func newCollector(getenv func(string) string) (*collector, error) {
	c := &collector{url: defaultCollector, header: http.Header{"User-Agent": {"leasehold"}}}
	c.client = &http.Client{Timeout: collectorTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the headers may hold a password for this collector
	}}
	for _, word := range []string{"PROTOCOL", "ENDPOINT", "HEADERS", "TIMEOUT", "COMPRESSION"} {
		if value := otlpVariable(getenv, word); value != "" {
			if err := c.set(word, value); err != nil {
				return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_%s: %w", word, err)
			}
		}
	}
	if getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" { // it is for all signals
		c.url = strings.TrimSuffix(c.url, "/") + "/v1/traces"
	}
	c.header.Set("Content-Type", "application/x-protobuf")
	if c.zipped {
		c.header.Set("Content-Encoding", "gzip")
	}
	config, err := collectorTLS(getenv)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = config
	c.client.Transport = transport
	return c, err
}

// otlpVariable returns the variable for traces with the suffix word, or, if that is not set,
// the variable for all signals.
func otlpVariable(getenv func(string) string, word string) string {
	if v := getenv("OTEL_EXPORTER_OTLP_TRACES_" + word); v != "" {
		return v
	}
	return getenv("OTEL_EXPORTER_OTLP_" + word)
}

// set sets the value of a variable. The errors do not quote values that may hold a password.
func (c *collector) set(word, text string) error {
	switch word {
	case "PROTOCOL":
		if text != "http/protobuf" {
			return fmt.Errorf("%q is not spoken, but http/protobuf is", text)
		}
	case "ENDPOINT":
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return errors.New("not an http or https URL")
		}
		c.url = text
	case "HEADERS":
		return c.setHeaders(text)
	case "TIMEOUT":
		ms, err := strconv.ParseInt(text, 10, 32)
		if err != nil || ms <= 0 {
			return fmt.Errorf("%q is not a number of milliseconds above 0", text)
		}
		c.client.Timeout = time.Duration(ms) * time.Millisecond
	case "COMPRESSION":
		if text != "gzip" && text != "none" {
			return fmt.Errorf("%q is neither gzip nor none", text)
		}
		c.zipped = text == "gzip"
	}
	return nil
}

func (c *collector) setHeaders(text string) error {
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || err != nil || name == "" {
			return errors.New("not of the form name=value,name=value")
		}
		c.header.Set(name, value)
	}
	return nil
}

// collectorTLS returns nil if no variable names a certificate.
func collectorTLS(getenv func(string) string) (*tls.Config, error) {
	ca, cert, key := otlpVariable(getenv, "CERTIFICATE"), otlpVariable(getenv, "CLIENT_CERTIFICATE"), otlpVariable(getenv, "CLIENT_KEY")
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		config.RootCAs = x509.NewCertPool()
		if err := trust(config.RootCAs, ca); err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
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
