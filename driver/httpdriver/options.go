package httpdriver

import (
	"fmt"
	"net/http"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// Bounds of the timeout.
const (
	DefaultTimeout = 10 * time.Second
	MinTimeout     = 10 * time.Millisecond
	MaxTimeout     = 5 * time.Minute
)

// Option changes a default of a driver.
type Option func(*config) error

type config struct {
	client  *http.Client
	fresh   func() *http.Client    // makes another client of our own; nil if the client is the caller's
	token   func() (string, error) // nil without
	rotates bool                   // the token is in a file, which is read for each request
	timeout time.Duration
}

func newConfig(opts []Option) (config, error) {
	c := config{timeout: DefaultTimeout, fresh: newClient}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("nil option: %w", driver.ErrInvalid))
			continue
		}
		errs = append(errs, o(&c))
	}
	if c.client == nil {
		c.client = c.fresh()
	}
	c.client = staying(c.client)
	return c, oneline.Join(errs...)
}

// withFresh makes the driver use its own clients, made by fresh.
func withFresh(fresh func() *http.Client) Option {
	return func(cfg *config) error {
		cfg.client, cfg.fresh = nil, fresh
		return nil
	}
}

// staying returns a copy of the client that does not follow redirections: they turn a
// POST into a GET, and would send the token to another host.
func staying(c *http.Client) *http.Client {
	stays := *c
	stays.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &stays
}

// Bounds of the silence of an HTTP/2 connection, which carries all requests of a client: after
// pingAfter a ping is sent, and pingTimeout later the connection is closed. A try to renew a
// lease of 9 s takes 3 s.
const (
	pingAfter   = time.Second
	pingTimeout = time.Second
)

// newClient returns a client that keeps as many connections as are used at a time. The
// default client keeps two, and makes further ones for each request.
func newClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 256
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return &http.Client{Transport: t}
}

// WithClient sets the HTTP client, for certificates, proxies and tracing; by default the
// driver makes one of its own. The driver does not close it. It must have no Timeout,
// which would end the stream of events, and its transport must not repeat requests. The
// driver follows no redirections, so CheckRedirect is not called. When a request is not
// answered in time the driver closes the client's idle connections. A transport that speaks
// HTTP/2 should set HTTP2.SendPingTimeout: otherwise a connection that a router has forgotten
// is used until the operating system gives it up, after a quarter of an hour.
func WithClient(c *http.Client) Option {
	return func(cfg *config) error {
		if c == nil || c.Timeout != 0 {
			return fmt.Errorf("no HTTP client, or one with a Timeout: %w", driver.ErrInvalid)
		}
		cfg.client, cfg.fresh = c, nil
		return nil
	}
}

// WithToken sets the bearer token of every request.
func WithToken(token string) Option {
	return func(cfg *config) error {
		if token == "" {
			return fmt.Errorf("empty token: %w", driver.ErrInvalid)
		}
		cfg.token, cfg.rotates = func() (string, error) { return token, nil }, false
		return nil
	}
}

// WithTimeout bounds one request: 10 ms to 5 min, 10 s by default.
func WithTimeout(d time.Duration) Option {
	return func(cfg *config) error {
		cfg.timeout = d
		return check.Range("timeout", d, MinTimeout, MaxTimeout)
	}
}
