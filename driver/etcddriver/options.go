package etcddriver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leasehold-go/leasehold/internal/storeurl"
	"github.com/leasehold-go/leasehold/internal/urlquery"
)

// Option changes a default of a store.
type Option func(*options)

type options struct {
	prefix  string
	timeout time.Duration
}

// WithPrefix sets the beginning of all keys, "leasehold/" by default, at most 512 bytes of UTF-8.
// Stores with different prefixes have different locks, if neither is the beginning of the other.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithTimeout bounds one call, with all its requests: 100 ms to a minute, 2 s by default. If it
// passes after a write was sent, the outcome is unknown.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

func newOptions(opts []Option) (options, error) {
	o := options{prefix: "leasehold/", timeout: 2 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	if len(o.prefix) > 512 || !utf8.ValidString(o.prefix) {
		return o, errors.New("prefix is not UTF-8 of at most 512 bytes")
	}
	if o.timeout < 100*time.Millisecond || o.timeout > time.Minute {
		return o, fmt.Errorf("timeout %v is not between 100ms and 1m", o.timeout)
	}
	return o, nil
}

// parse reads a URL.
func parse(rawURL string) (cfg clientv3.Config, opts []Option, err error) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok || scheme != "etcd" && scheme != "etcds" {
		return cfg, nil, errors.New("want a URL such as etcd://user:password@h1:2379,h2:2379/prefix")
	}
	if err := storeurl.Check(rawURL); err != nil {
		return cfg, nil, err
	}
	front, _, _ := strings.Cut(rest, "?")
	authority, _, _ := strings.Cut(front, "/")
	hosts := authority[strings.LastIndex(authority, "@")+1:]
	one := scheme + "://" + strings.TrimSuffix(authority, hosts) + "host" + strings.TrimPrefix(rest, authority)
	u, err := url.Parse(one) // net/url takes a single host
	if err != nil || !storeurl.Shown(rawURL) {
		return cfg, nil, errors.New("not a URL; " + storeurl.Encode)
	}
	web := "http"
	if scheme == "etcds" {
		web, cfg.TLS = "https", &tls.Config{MinVersion: tls.VersionTLS12}
	}
	for host := range strings.SplitSeq(hosts, ",") {
		h, err := url.Parse(web + "://" + host)
		if err != nil || h.Hostname() == "" {
			return cfg, nil, errors.New("a host is missing, or is not of the form name:port")
		}
		if h.Port() == "" {
			h.Host += ":2379"
		}
		cfg.Endpoints = append(cfg.Endpoints, h.String())
	}
	cfg.Username = u.User.Username()
	cfg.Password, _ = u.User.Password()
	if (cfg.Username == "") != (cfg.Password == "") {
		return cfg, nil, errors.New("user name and password go together")
	}
	q := urlquery.Of(u)
	if err := q.TLS(cfg.TLS, "etcds"); err != nil {
		return cfg, nil, err
	}
	prefix := strings.TrimPrefix(u.Path, "/")
	switch {
	case prefix == "":
		prefix = "leasehold/"
	case !strings.HasSuffix(prefix, "/"):
		prefix += "/"
	}
	opts = []Option{WithPrefix(q.Text("prefix", prefix)), WithTimeout(q.Duration("timeout", 2*time.Second))}
	cfg.MaxUnaryRetries = 2 // with another token, if a session of authentication has ended
	cfg.DialKeepAliveTime, cfg.DialKeepAliveTimeout = 10*time.Second, 2*time.Second
	cfg.Logger = zap.NewNop()
	return cfg, opts, q.Rest()
}
