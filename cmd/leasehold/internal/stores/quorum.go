package stores

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/internal/redisurl"
	"github.com/leasehold-go/leasehold/internal/storeurl"
	"github.com/leasehold-go/leasehold/internal/urlquery"
)

// quorumPrefix precedes the scheme of the nodes.
const quorumPrefix = "quorum+"

// quorum opens a store on several independent servers:
//
//	quorum+redis://user:password@h1:6379,h2,h3/0?prefix=app:
//	quorum+postgres://user:password@h1,h2,h3/database (also mysql, mariadb, nats, tls)
//	quorum://?node=redis://h1&node=rediss://h2&node=postgres%3A%2F%2Fh3%2Fapp%3Ftable%3Dlocks
//
// The last form is for nodes of different kinds, each with its own options; a URL with
// several options is percent-encoded. In the other forms, fencing, guard, max-ttl and
// max-skew are parameters of the quorum, the timeout is for the quorum and every node, and
// all other parameters go to every node.
func quorum(rawURL string) (driver.Driver, error) {
	parse := quorumNodes
	if strings.HasPrefix(rawURL, mixed+":") {
		parse = mixedNodes
	}
	urls, names, opts, err := parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w: %w", storeurl.Redact(rawURL), err, driver.ErrInvalid)
	}
	var nodes []driver.Driver
	closeAll := func() {
		for _, d := range nodes {
			_ = d.Close()
		}
	}
	for _, u := range urls {
		d, err := Open(u)
		if err != nil {
			closeAll()
			return nil, err
		}
		nodes = append(nodes, d)
	}
	s, err := quorumdriver.New(nodes, append(opts, quorumdriver.WithNames(names...))...)
	if err != nil {
		closeAll()
		return nil, fmt.Errorf("store %s: %w", storeurl.Redact(rawURL), err)
	}
	return s, nil
}

// mixed is the scheme of a quorum that names each node by a URL.
const mixed = "quorum"

// mixedNodes reads the URLs of the nodes from the parameters.
func mixedNodes(rawURL string) (urls, names []string, opts []quorumdriver.Option, err error) {
	front, query, _ := strings.Cut(rawURL, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, nil, nil, errors.New("the text after the question mark is not of the form name=value&name=value")
	}
	urls = values["node"]
	values.Del("node")
	if front != mixed+"://" && front != mixed+":" || len(urls) == 0 {
		return nil, nil, nil, errors.New("want the form quorum://?node=redis://h1&node=redis://h2&node=postgres://h3/app")
	}
	for i, u := range urls {
		scheme, _ := schemeOf(u)
		if !slices.Contains(nodeSchemes(), scheme) {
			return nil, nil, nil, fmt.Errorf("node %d is of no kind that serves in a quorum: %s", i+1, strings.Join(nodeSchemes(), ", "))
		}
		name := fmt.Sprintf("node %d", i+1)
		if storeurl.Shown(u) {
			name = strings.Replace(storeurl.Redact(u), "***@", "", 1)
		}
		names = append(names, name)
	}
	q, opts, err := quorumOptions(values)
	switch {
	case err != nil:
		return nil, nil, nil, storeurl.Reason(rawURL, err)
	case q.Rest() != nil: // the error omits the names: they may be parts of a password
		return nil, nil, nil, errors.New("an unknown option; those of a node belong into its URL, percent-encoded")
	}
	return urls, names, opts, nil
}

// nodeSchemes returns the schemes of the stores that can be nodes: each is a server that
// fails independently of the other nodes, and has a clock that is finer than a second.
func nodeSchemes() []string {
	schemes := append(redisurl.Schemes(), "http", "https")
	for _, k := range kinds {
		for _, scheme := range k.schemes {
			if node, ok := strings.CutPrefix(scheme, quorumPrefix); ok && !slices.Contains(schemes, node) {
				schemes = append(schemes, node)
			}
		}
	}
	return schemes
}

// quorumNodes splits a URL into one URL for each node; net/url does not support several hosts.
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
		return nil, nil, nil, errors.New("the text after the question mark is not of the form name=value&name=value")
	}
	q, opts, err := quorumOptions(values)
	if err != nil {
		return nil, nil, nil, storeurl.Reason(rawURL, err)
	}
	query = ofNode(query, &q)
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return nil, nil, nil, errors.New("a node has no name; name all of them, as in quorum+redis://h1,h2,h3")
		}
		urls = append(urls, scheme+"://"+user+host+path+"?"+query)
		if !storeurl.Shown(rawURL) { // host may be the beginning of a password
			host = fmt.Sprintf("node %d", len(urls))
		}
		names = append(names, host)
	}
	return urls, names, opts, nil
}

// ofNode removes the parameters that the quorum has read from a query, except for the timeout. The
// remaining text does not change, so that a node recognizes a possible password and omits it from
// its errors.
func ofNode(query string, q *urlquery.Query) string {
	pairs := slices.DeleteFunc(strings.Split(query, "&"), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		return err == nil && name != "timeout" && !q.Has(name)
	})
	return strings.Join(pairs, "&")
}

// quorumOptions reads the parameters of the quorum from values. q has the others.
func quorumOptions(values url.Values) (q urlquery.Query, opts []quorumdriver.Option, err error) {
	if values.Get("timeout") == "" {
		values.Del("timeout") // each node refuses it, or has its own
	}
	q = urlquery.New(values)
	off := func(name string, option quorumdriver.Option) {
		if q.Has(name) && !q.Bool(name) {
			opts = append(opts, option)
		}
	}
	span := func(name string, option func(time.Duration) quorumdriver.Option) {
		if q.Has(name) {
			opts = append(opts, option(q.Duration(name, 0)))
		}
	}
	off("fencing", quorumdriver.WithoutFencing())
	off("guard", quorumdriver.WithoutGuard())
	span("max-ttl", quorumdriver.WithMaxTTL)
	span("max-skew", quorumdriver.WithMaxSkew)
	span("timeout", quorumdriver.WithTimeout)
	return q, opts, q.Err()
}
