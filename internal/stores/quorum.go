package stores

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/quorumdriver"
)

// quorumPrefix stands before the scheme of the nodes.
const quorumPrefix = "quorum+"

// quorum opens a store on several servers that know nothing of each other:
//
//	quorum+redis://user:password@h1:6379,h2,h3/0?prefix=app:
//	quorum+postgres://user:password@h1,h2,h3/database
//
// What is not a parameter of the quorum itself (fencing, guard, max-ttl and
// max-skew) goes to every node; the timeout is for both.
func quorum(rawURL string) (driver.Driver, error) {
	urls, names, opts, err := quorumNodes(rawURL)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w: %w", Redact(rawURL), err, driver.ErrInvalid)
	}
	var nodes []driver.Driver
	closeAll := func() {
		for _, d := range nodes {
			_ = d.Close()
		}
	}
	for _, u := range urls {
		d, err := node(u)
		if err != nil {
			closeAll()
			return nil, err
		}
		nodes = append(nodes, d)
	}
	s, err := quorumdriver.New(nodes, append(opts, quorumdriver.WithNames(names...))...)
	if err != nil {
		closeAll()
		return nil, fmt.Errorf("store %s: %w", Redact(rawURL), err)
	}
	return s, nil
}

// node opens a member of a quorum.
func node(rawURL string) (driver.Driver, error) {
	if strings.HasPrefix(rawURL, "postgres") {
		return postgres(rawURL)
	}
	return redis(rawURL)
}

// quorumNodes takes the URL apart, which net/url cannot do for several hosts.
func quorumNodes(rawURL string) (urls, names []string, opts []quorumdriver.Option, err error) {
	scheme, rest, _ := strings.Cut(strings.TrimPrefix(rawURL, quorumPrefix), "://")
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, found := strings.Cut(rest, "/")
	if found {
		path = "/" + path
	}
	user := ""
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		user, hosts = hosts[:at+1], hosts[at+1:]
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, nil, nil, errors.New("what follows the question mark is not of the form name=value&name=value")
	}
	if opts, err = quorumOptions(values); err != nil {
		return nil, nil, nil, err
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return nil, nil, nil, errors.New("a node has no name; name all of them, as in quorum+redis://h1,h2,h3")
		}
		urls = append(urls, scheme+"://"+user+host+path+"?"+values.Encode())
		names = append(names, host)
	}
	return urls, names, opts, nil
}

// quorumOptions takes the parameters of the quorum out of values.
func quorumOptions(values url.Values) (opts []quorumdriver.Option, err error) {
	take := func(name string, read func(text string) error) {
		for _, spelling := range []string{name, strings.ReplaceAll(name, "-", "_")} {
			if values.Has(spelling) && err == nil {
				if e := read(values.Get(spelling)); e != nil {
					err = fmt.Errorf("%s=%q: %w", name, values.Get(spelling), e)
				}
			}
			values.Del(spelling)
		}
	}
	off := func(option quorumdriver.Option) func(string) error {
		return func(text string) error {
			on, err := strconv.ParseBool(text)
			if err != nil {
				return errors.New("want true or false")
			}
			if !on {
				opts = append(opts, option)
			}
			return nil
		}
	}
	span := func(option func(time.Duration) quorumdriver.Option) func(string) error {
		return func(text string) error {
			d, err := time.ParseDuration(text)
			if err != nil {
				return errors.New("want a duration such as 500ms")
			}
			opts = append(opts, option(d))
			return nil
		}
	}
	take("fencing", off(quorumdriver.WithoutFencing()))
	take("guard", off(quorumdriver.WithoutGuard()))
	take("max-ttl", span(quorumdriver.WithMaxTTL))
	take("max-skew", span(quorumdriver.WithMaxSkew))
	if timeout := values.Get("timeout"); timeout != "" && err == nil {
		take("timeout", span(quorumdriver.WithTimeout))
		values.Set("timeout", timeout)
	}
	return opts, err
}
