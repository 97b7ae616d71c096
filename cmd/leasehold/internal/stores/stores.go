// Package stores opens a store by its URL, for the command and the service.
// The library never imports it: its users import the driver of their store.
package stores

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/filedriver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/driver/postgresdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/redisurl"
	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// Memory is the URL of a store in the memory of this process.
const Memory = "memory:"

// kind is one kind of store.
type kind struct {
	schemes  []string
	examples []string                                   // empty for the store of this process alone, and for further kinds of quorum
	open     func(rawURL string) (driver.Driver, error) // nil for a quorum
}

// kinds has the order of the lists in messages.
var kinds = slices.Concat(usual, optional)

var usual = []kind{
	{[]string{"file"}, []string{"file:///var/lib/leasehold"}, opened(filedriver.Open)},
	{redisurl.Schemes(), []string{
		"redis://user:password@host:6379/0", "rediss://host:6379", "unix:///run/redis.sock",
		"redis+sentinel://s1,s2,s3/?master=mymaster", "redis+cluster://n1,n2,n3",
	}, opened(rueidisdriver.Open)},
	{[]string{"postgres", "postgresql"}, []string{"postgres://user:password@host:5432/database"}, opened(postgresdriver.Open)},
	{[]string{quorumPrefix + "redis", quorumPrefix + "rediss", quorumPrefix + "postgres", quorumPrefix + "postgresql"}, []string{"quorum+redis://n1,n2,n3,n4,n5"}, nil},
	{[]string{mixed}, []string{"quorum://?node=redis://n1&node=redis://n2&node=postgres://n3/db"}, nil},
	{[]string{"http", "https"}, []string{"https://:token@host"}, opened(httpdriver.Open)},
	{[]string{"memory"}, nil, memory},
}

// Open opens the store that a URL names. The error matches [driver.ErrInvalid] if the URL is
// wrong, and [driver.ErrUnavailable] if the store cannot be used. Open does not connect to a
// server: the first request does. Passwords never appear in an error.
func Open(rawURL string) (driver.Driver, error) {
	scheme, err := schemeOf(rawURL)
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		switch {
		case !slices.Contains(k.schemes, scheme):
		case k.open == nil:
			return quorum(rawURL)
		default:
			return k.open(rawURL)
		}
	}
	return nil, fmt.Errorf("store %s: unknown kind; known are %s, and of \"serve\" %q: %w", storeurl.Redact(rawURL), Examples(", "), Memory, driver.ErrInvalid)
}

// Examples lists the forms of URL of the stores that processes can share.
func Examples(separator string) string {
	var list []string
	for _, k := range kinds {
		list = append(list, k.examples...)
	}
	return strings.Join(list, separator)
}

// Absolute returns a URL that means the same in every working directory.
func Absolute(rawURL string) (string, error) {
	scheme, err := schemeOf(rawURL)
	if err != nil || scheme != "file" {
		return withAbsoluteFiles(rawURL), err
	}
	u, err := url.Parse(rawURL)
	if err != nil || u.Opaque == "" {
		return rawURL, nil // Open reports errors in it
	}
	path, err := url.PathUnescape(u.Opaque)
	if path == "~" || strings.HasPrefix(path, "~/") { // shells do not expand ~ within a word
		return "", fmt.Errorf("store %s: ~ is not your home directory here; give the whole path, or file:./%s for a directory of that name: %w", storeurl.Redact(rawURL), path, driver.ErrInvalid)
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", storeurl.Invalid(rawURL, err)
	}
	u.Opaque, u.Path = "", path
	return u.String(), nil
}

// fileOptions are the options that name a file.
var fileOptions = []string{
	"password-file", "sentinel-password-file", "token-file", "ca", "cert", "key",
	"passfile", "creds", "sslrootcert", "sslcert", "sslkey", "servicefile",
}

// withAbsoluteFiles makes the paths in the query of a URL absolute. It leaves parameters that
// it cannot decode unchanged: Open reports their errors.
func withAbsoluteFiles(rawURL string) string {
	front, query, ok := strings.Cut(rawURL, "?")
	if !ok {
		return rawURL
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		path, err := url.QueryUnescape(value)
		if err != nil || path == "" || path == "system" && name == "sslrootcert" || filepath.IsAbs(path) || !slices.Contains(fileOptions, strings.ReplaceAll(name, "_", "-")) {
			continue
		}
		if path, err = filepath.Abs(path); err == nil {
			pairs[i] = name + "=" + strings.ReplaceAll(url.QueryEscape(path), "%2F", "/")
		}
	}
	return front + "?" + strings.Join(pairs, "&")
}

// isPath matches a path that may be shown: one without the characters of a URL.
var isPath = regexp.MustCompile(`^[./][^@:?#]*$`)

func schemeOf(rawURL string) (string, error) {
	scheme, _, ok := strings.Cut(rawURL, ":")
	if !ok || strings.Contains(scheme, "/") {
		path := "/var/lib/leasehold"
		if isPath.MatchString(rawURL) {
			path = rawURL
		}
		return "", fmt.Errorf("the store is not a URL; a directory is file:%s, and known are %s: %w", path, Examples(", "), driver.ErrInvalid)
	}
	return scheme, nil
}

// opened returns the open of a kind, which returns no nil driver in an interface.
func opened[D driver.Driver, O any](open func(string, ...O) (D, error)) func(string) (driver.Driver, error) {
	return func(rawURL string) (driver.Driver, error) {
		d, err := open(rawURL)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
}

func memory(rawURL string) (driver.Driver, error) {
	if rawURL != Memory {
		return nil, fmt.Errorf("store %s: a store in memory has no name and no options: %w", storeurl.Redact(rawURL), driver.ErrInvalid)
	}
	return memdriver.New(), nil
}

// schemas are the schemes of the stores that keep locks in a table.
var schemas = []string{"postgres", "postgresql", "mysql", "mariadb"}

// Schema returns the statements that create the table of a store on PostgreSQL or MySQL; for a
// quorum of such stores, the statements for each node. It makes no connection. The error matches
// [driver.ErrInvalid] if the URL is wrong, or if its store needs no schema.
func Schema(rawURL string) (string, error) {
	scheme, err := schemeOf(rawURL)
	switch {
	case err != nil:
		return "", err
	case strings.HasPrefix(scheme, quorumPrefix+"postgres"):
		urls, _, _, err := quorumNodes(rawURL)
		if err != nil {
			return "", fmt.Errorf("store %s: %w: %w", storeurl.Redact(rawURL), err, driver.ErrInvalid)
		}
		return Schema(urls[0])
	case scheme == mixed:
		return "", fmt.Errorf("store %s: give the URL of one node on PostgreSQL; other nodes need no schema: %w", storeurl.Redact(rawURL), driver.ErrInvalid)
	case !slices.Contains(schemas, scheme):
		return "", fmt.Errorf("store %s needs no schema: only PostgreSQL and MySQL do: %w", storeurl.Redact(rawURL), driver.ErrInvalid)
	}
	d, err := Open(rawURL)
	if err != nil {
		return "", err
	}
	defer d.Close()
	return d.(interface{ SQL() string }).SQL(), nil
}

// AmongOthers reports whether a URL has an empty prefix on Redis, so that every key of the
// server belongs to the store. Locks of other libraries can then be found only by a prefix.
func AmongOthers(rawURL string) bool {
	config, err := redisurl.Parse(rawURL)
	return err == nil && config.Prefix == ""
}
