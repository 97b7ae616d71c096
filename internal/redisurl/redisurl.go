// Package redisurl reads the URLs of Redis and Valkey stores, for both drivers.
//
//	redis://user:password@host:6379/0      a single server; rediss:// with TLS
//	unix://user:password@/run/redis.sock   its socket; the database as ?db=1
//	redis+sentinel://s1:26379,s2,s3/0?master=mymaster
//	redis+cluster://n1:6379,n2,n3          or redis://n1,n2,n3?cluster=true
//
// rediss+sentinel and rediss+cluster use TLS. The query carries options:
//
//	prefix      beginning of every key, "leasehold:" by default
//	timeout     bound of one request, such as 500ms; 2s by default
//	replicas    how many replicas must acknowledge grants and renewals; 0 by
//	            default
//	replica-timeout
//	            limit of the wait for replicas, at most half of timeout; 1s or
//	            half of timeout by default
//	db          the number of the database
//	password-file
//	            a file whose first line is the password; it is read for each connection
//	master      the name of the primary, for sentinels
//	sentinel-username, sentinel-password, sentinel-password-file
//	            credentials of the sentinels, none by default
//	cluster     true: the server is a node of a cluster
//	client-name name shown by CLIENT LIST
//	ca          a file of trusted certificates, in addition to the system's
//	cert, key   files of the client's own certificate and key
//	server-name the name to expect in the server's certificate
//	skip-verify true: accept any certificate
package redisurl

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/redisroom"
	"github.com/leasehold-go/leasehold/internal/storeurl"
	"github.com/leasehold-go/leasehold/internal/urlquery"
)

// Kind is the kind of the addresses in a URL.
type Kind uint8

// The kinds.
const (
	Single Kind = iota
	Sentinel
	Cluster
)

// Config is the contents of a URL.
type Config struct {
	Kind    Kind
	Network string   // tcp or unix
	Addrs   []string // host:port, or the path of a socket
	Master  string   // with Sentinel

	Username, Password                 string
	SentinelUsername, SentinelPassword string
	DB                                 int
	ClientName                         string
	TLS                                *tls.Config // nil without

	login, sentinelLogin *login // nil unless the password is in a file

	redisroom.Options
}

// schemes are the forms of a URL.
var schemes = map[string]struct {
	kind Kind
	tls  bool
}{
	"redis":           {Single, false},
	"rediss":          {Single, true},
	"unix":            {Single, false},
	"redis+sentinel":  {Sentinel, false},
	"rediss+sentinel": {Sentinel, true},
	"redis+cluster":   {Cluster, false},
	"rediss+cluster":  {Cluster, true},
}

// Schemes returns the schemes of the URLs that Parse reads, sorted.
func Schemes() []string { return slices.Sorted(maps.Keys(schemes)) }

// Parse reads a URL. Its errors match driver.ErrInvalid and never show a
// password.
func Parse(text string) (Config, error) {
	c, err := parse(text)
	if err != nil {
		return Config{}, fmt.Errorf("store URL %s: %w", storeurl.Redact(text), check.Invalid(err))
	}
	return c, nil
}

// parse takes the URL apart by hand where several hosts stand in it, which
// net/url does not know.
func parse(text string) (Config, error) {
	scheme, rest, separated := strings.Cut(text, "://")
	form, ok := schemes[scheme]
	switch {
	case !separated:
		return Config{}, storeurl.Reason(text, errors.New("no //"))
	case !ok:
		return Config{}, fmt.Errorf("unknown scheme, want one of %s", strings.Join(Schemes(), ", "))
	}
	hosts, tail := authority(rest)
	u, err := url.Parse(scheme + "://" + tail)
	if err != nil {
		return Config{}, errors.New("not a URL; " + storeurl.Encode)
	}
	c := Config{Kind: form.kind, Network: "tcp", Options: redisroom.Defaults()}
	c.Username = u.User.Username()
	c.Password, _ = u.User.Password()
	if form.tls {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	q := urlquery.Of(u)
	if scheme == "unix" {
		err = c.socket(hosts, u.Path)
	} else {
		err = c.servers(hosts, u.Path)
	}
	if err == nil {
		if err = c.options(&q); err != nil {
			err = storeurl.Reason(text, err)
		}
	}
	return c, err
}

// authority splits the text after the scheme into the hosts and the URL without them.
func authority(rest string) (hosts, tail string) {
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	start := strings.LastIndexByte(rest[:end], '@') + 1
	return rest[start:end], rest[:start] + "host" + rest[end:]
}

func (c *Config) socket(host, path string) error {
	if host != "" || path == "" || path == "/" {
		return errors.New("want unix:///path/of/the/socket")
	}
	c.Network, c.Addrs = "unix", []string{path}
	return nil
}

func (c *Config) servers(hosts, path string) error {
	port := "6379"
	if c.Kind == Sentinel {
		port = "26379"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := address(host, port)
		if err != nil {
			return err
		}
		c.Addrs = append(c.Addrs, addr)
	}
	db := strings.Trim(path, "/")
	if db == "" {
		return nil
	}
	var err error
	c.DB, err = database(db)
	return err
}

// address completes host, which may be host:port, [v6]:port or empty.
func address(host, port string) (string, error) {
	if host == "" {
		host = "localhost"
	}
	if h, p, err := net.SplitHostPort(host); err == nil {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return "", fmt.Errorf("a port must be 1 to 65535; %s", storeurl.Encode)
		}
		if h == "" {
			h = "localhost"
		}
		return net.JoinHostPort(h, p), nil
	}
	h := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.ContainsAny(h, "[]@ ") || h == host && strings.Contains(h, ":") {
		return "", fmt.Errorf("a host is not of the form host, host:port or [v6 address]:port; %s", storeurl.Encode)
	}
	return net.JoinHostPort(h, port), nil
}

func database(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("the database is not a number from 0; %s", storeurl.Encode)
	}
	return n, nil
}

// options reads the query, all of which must be understood.
func (c *Config) options(q *urlquery.Query) error {
	c.Prefix = q.Text("prefix", c.Prefix)
	c.Timeout = q.Duration("timeout", c.Timeout)
	c.ClientName = q.Text("client-name", "")
	c.Master = q.Text("master", "")
	c.SentinelUsername, c.SentinelPassword = q.Text("sentinel-username", ""), q.Text("sentinel-password", "")
	if err := c.passwords(q); err != nil {
		return err
	}
	if db := q.Text("db", ""); db != "" {
		var err error
		if c.DB, err = database(db); err != nil {
			return err
		}
	}
	if q.Bool("cluster") {
		if c.Kind == Sentinel || c.Network == "unix" {
			return errors.New("cluster=true goes with redis:// and rediss://")
		}
		c.Kind = Cluster
	}
	if err := c.replicas(q); err != nil {
		return err
	}
	if err := q.TLS(c.TLS, "rediss://"); err != nil {
		return err
	}
	if err := q.Rest(); err != nil {
		return err
	}
	return c.check()
}

// passwords reads which files hold passwords. The client libraries then get no user name
// and password: Dial authenticates.
func (c *Config) passwords(q *urlquery.Query) error {
	for _, f := range []struct {
		name           string
		user, password *string
		login          **login
	}{
		{"password-file", &c.Username, &c.Password, &c.login},
		{"sentinel-password-file", &c.SentinelUsername, &c.SentinelPassword, &c.sentinelLogin},
	} {
		path := q.Text(f.name, "")
		if path == "" {
			continue
		}
		if *f.password != "" {
			return fmt.Errorf("give a password or a %s, not both", f.name)
		}
		read, err := urlquery.Secret(path)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		*f.login = &login{user: cmp.Or(*f.user, "default"), path: path, read: read}
		*f.user = ""
	}
	return nil
}

func (c *Config) check() error {
	switch {
	case c.Kind == Sentinel && c.Master == "":
		return errors.New("sentinels need the name of the primary, as in ?master=mymaster")
	case c.Kind != Sentinel && (c.Master != "" || c.SentinelUsername != "" || c.SentinelPassword != "" || c.sentinelLogin != nil):
		return errors.New("master and sentinel credentials go with redis+sentinel://")
	case c.Kind == Single && len(c.Addrs) > 1:
		return errors.New("several servers: use redis+cluster://, redis+sentinel:// or quorum+redis://")
	case c.Kind == Cluster && c.DB != 0:
		return errors.New("a cluster has database 0 only")
	}
	return c.Check()
}

// replicas reads by how many replicas, and how soon, grants are acknowledged.
func (c *Config) replicas(q *urlquery.Query) error {
	given := q.Has("replica-timeout")
	acks := redisroom.Acks{
		Replicas: q.Number("replicas"),
		Timeout:  q.Duration("replica-timeout", redisroom.DefaultReplicaTimeout(c.Timeout)),
	}
	switch {
	case acks.Replicas > 0:
		c.Acks = &acks
	case given:
		return errors.New("replica-timeout goes with replicas, as in ?replicas=1&replica-timeout=500ms")
	}
	return nil
}
