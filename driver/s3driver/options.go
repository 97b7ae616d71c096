package s3driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/storeurl"
	"github.com/leasehold-go/leasehold/internal/urlquery"
)

// Option changes a default of a store.
type Option func(*options)

type options struct {
	prefix  string
	timeout time.Duration
}

const (
	defaultPrefix  = "leasehold"
	defaultTimeout = 3 * time.Second
)

// WithPrefix sets the first part of the names of objects, "leasehold" by default: up to 200 bytes
// of [A-Za-z0-9._-], with slashes between them. Locks of different prefixes are independent. No
// other program writes objects there.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithTimeout bounds one request to the store: 100 ms to a minute, 3 s by default. A call makes
// two requests, or more if other processes change the record at the same time. If a request that
// writes takes longer, its outcome is unknown.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

func newOptions(opts []Option) (options, error) {
	o := options{prefix: defaultPrefix, timeout: defaultTimeout}
	for _, opt := range opts {
		opt(&o)
	}
	dots := func(part string) bool { return part == "." || part == ".." }
	if len(o.prefix) > 200 || !prefixForm.MatchString(o.prefix) || slices.ContainsFunc(strings.Split(o.prefix, "/"), dots) {
		return o, check.Errorf("prefix %q is not up to 200 of [A-Za-z0-9._-] with slashes between them", o.prefix)
	}
	return o, check.Range("timeout", o.timeout, 100*time.Millisecond, time.Minute)
}

var (
	prefixForm = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)
	bucketForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]+[A-Za-z0-9]$`)
)

func checkBucket(name string) error {
	if len(name) > 63 || !bucketForm.MatchString(name) {
		return check.Errorf("bucket name %q is not 3 to 63 of [A-Za-z0-9._-]", name)
	}
	return nil
}

// parse returns a client for the bucket that a URL names.
func parse(rawURL string) (client *s3.Client, bucket string, opts []Option, err error) {
	if err := storeurl.Check(rawURL); err != nil {
		return nil, "", nil, err
	}
	u, err := url.Parse(rawURL)
	switch {
	case err != nil || u.Scheme != "s3" || u.Opaque != "":
		return nil, "", nil, errors.New("want a URL such as s3://bucket/prefix?region=eu-central-1")
	case u.User != nil:
		return nil, "", nil, errors.New("credentials do not belong into the URL: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
	}
	if err := checkBucket(u.Host); err != nil {
		return nil, "", nil, err
	}
	q := urlquery.Of(u)
	region, endpoint := q.Text("region", ""), q.Text("endpoint", "")
	anyStyle, pathStyle := !q.Has("path-style"), q.Bool("path-style")
	opts = []Option{WithTimeout(q.Duration("timeout", defaultTimeout))}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		opts = append(opts, WithPrefix(prefix))
	}
	if err := q.Rest(); err != nil {
		return nil, "", nil, err
	}
	if err := checkEndpoint(endpoint); err != nil {
		return nil, "", nil, err
	}
	cfg, err := config.LoadDefaultConfig(context.Background(), config.WithRegion(region))
	if err != nil {
		return nil, "", nil, fmt.Errorf("the configuration of AWS: %w", err)
	}
	switch {
	case cfg.Region == "" && endpoint == "":
		return nil, "", nil, errors.New("no region: add ?region=, or set AWS_REGION")
	case cfg.Region == "":
		cfg.Region = "us-east-1"
	}
	client = s3.NewFromConfig(cfg, func(o *s3.Options) {
		if endpoint != "" {
			o.BaseEndpoint = aws.String(endpoint)
		}
		o.UsePathStyle = pathStyle || anyStyle && o.BaseEndpoint != nil              // which AWS_ENDPOINT_URL sets, too
		if c, ok := o.HTTPClient.(interface{ GetTransport() *http.Transport }); ok { // which cannot close idle connections
			unredirected := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			o.HTTPClient = &http.Client{Transport: c.GetTransport(), CheckRedirect: unredirected}
		}
	})
	return client, u.Host, opts, nil
}

func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return errors.New("endpoint is not a URL such as https://minio.example:9000")
	}
	return nil
}
