package natsdriver

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leasehold-go/leasehold/internal/storeurl"
	"github.com/leasehold-go/leasehold/internal/urlquery"
)

// Option changes a default of a store.
type Option func(*options)

type options struct {
	bucket   string
	replicas int // of a bucket that is created; 0 if no bucket is created
	timeout  time.Duration
}

// WithBucket sets the name of the bucket, "leasehold" by default: letters, digits, - and _.
// Locks of different buckets are independent.
func WithBucket(name string) Option { return func(o *options) { o.bucket = name } }

// WithCreate makes the first call that finds no bucket create it, with file storage and 1, 3 or 5
// replicas. A bucket that exists stays as it is. Without it such a call fails at once with
// driver.ErrPermanent.
func WithCreate(replicas int) Option {
	return func(o *options) { o.replicas = cmp.Or(replicas, -1) }
}

// WithTimeout bounds each request, connecting included: 100 ms to a minute, 2 s by default. If it
// passes after a write was sent, the outcome is unknown.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

var bucketForm = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func newOptions(opts []Option) (options, error) {
	o := options{bucket: "leasehold", timeout: 2 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	switch {
	case len(o.bucket) > 200 || !bucketForm.MatchString(o.bucket):
		return o, fmt.Errorf("bucket %q is not 1 to 200 letters, digits, - and _", o.bucket)
	case o.replicas != 0 && o.replicas != 1 && o.replicas != 3 && o.replicas != 5:
		return o, errors.New("replicas: want 1, 3 or 5")
	case o.timeout < 100*time.Millisecond || o.timeout > time.Minute:
		return o, fmt.Errorf("timeout %v is not between 100ms and 1m", o.timeout)
	}
	return o, nil
}

// config is the contents of a URL.
type config struct {
	servers []string // with user and password
	creds   string   // a file
	tls     *tls.Config
	options []Option
}

// parse takes the URL apart by hand where it has several hosts, which net/url does not know.
func parse(text string) (config, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme != "nats" && scheme != "tls" {
		return config{}, errors.New("unknown scheme, want nats:// or tls://")
	}
	if err := storeurl.Check(text); err != nil {
		return config{}, err
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndex(rest[:end], "@") + 1
	u, err := url.Parse(scheme + "://" + rest[:at] + "h" + rest[end:])
	if err != nil {
		return config{}, errors.New("not a URL; " + storeurl.Encode)
	}
	var c config
	for host := range strings.SplitSeq(rest[at:end], ",") {
		one := scheme + "://" + strings.ReplaceAll(rest[:at], ",", "%2C") + host // nats.go divides the list by commas
		if v, err := url.Parse(one); err != nil || v.Hostname() == "" {
			return config{}, errors.New("want hosts such as h1:4222,h2,h3")
		}
		c.servers = append(c.servers, one)
	}
	if bucket := strings.Trim(u.Path, "/"); bucket != "" {
		c.options = append(c.options, WithBucket(bucket))
	}
	if scheme == "tls" {
		c.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return c, c.query(urlquery.Of(u))
}

// query reads the options.
func (c *config) query(q urlquery.Query) error {
	if err := q.TLS(c.tls, "tls://"); err != nil {
		return err
	}
	c.creds = q.Text("creds", "")
	replicas := q.Number("replicas")
	if q.Bool("create") {
		c.options = append(c.options, WithCreate(cmp.Or(replicas, 1)))
	} else if replicas != 0 {
		return errors.New("replicas goes with create=true")
	}
	if q.Has("timeout") {
		c.options = append(c.options, WithTimeout(q.Duration("timeout", 0)))
	}
	return q.Rest()
}

// connect makes a connection, within the timeout.
func (c *config) connect(timeout time.Duration) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.Name("leasehold"), nats.Timeout(timeout / time.Duration(len(c.servers))), nats.ReconnectBufSize(-1),
		nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.PingInterval(timeout / 2), nats.MaxPingsOutstanding(2),
		nats.FlusherTimeout(timeout), nats.ReconnectOnFlusherError(), // a write that blocks would hold up all calls
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // otherwise it prints to stderr
	}
	if c.tls != nil {
		opts = append(opts, nats.Secure(c.tls))
	}
	if c.creds != "" {
		opts = append(opts, nats.UserCredentials(c.creds))
	}
	return nats.Connect(strings.Join(c.servers, ","), opts...)
}
