// Package stores opens a store by its URL, for the command and the service.
// The library never imports it: its users name the one store that they want.
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
	"github.com/leasehold-go/leasehold/internal/redisurl"
	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// Memory is the URL of a store that only this process sees.
const Memory = "memory:"

// kind is one kind of store.
type kind struct {
	schemes  []string
	examples []string                                   // none for what only this process sees
	open     func(rawURL string) (driver.Driver, error) // nil for a quorum, which opens others
}

// kinds are in the order in which they are listed to people.
var kinds = []kind{
	{[]string{"file"}, []string{"file:///var/lib/leasehold"}, file},
	{redisurl.Schemes(), []string{
		"redis://user:password@host:6379/0", "rediss://host:6379", "unix:///run/redis.sock",
		"redis+sentinel://s1,s2,s3/?master=mymaster", "redis+cluster://n1,n2,n3",
	}, redis},
	{[]string{"postgres", "postgresql"}, []string{"postgres://user:password@host:5432/database"}, postgres},
	{[]string{quorumPrefix + "redis", quorumPrefix + "rediss", quorumPrefix + "postgres", quorumPrefix + "postgresql"}, []string{"quorum+redis://n1,n2,n3,n4,n5"}, nil},
	{[]string{mixed}, []string{"quorum://?node=redis://n1&node=redis://n2&node=postgres://n3/db"}, nil},
	{[]string{"http", "https"}, []string{"https://:token@host"}, service},
	{[]string{"memory"}, nil, memory},
}

// Open opens the store that a URL names. What is wrong with the URL matches
// [driver.ErrInvalid]; a store that cannot be used, [driver.ErrUnavailable].
// A server is not asked before it is needed. Passwords never appear in an
// error.
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

// Examples lists the forms of URL whose store other processes see too.
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
		return rawURL, nil // Open says what is wrong with it, if anything
	}
	path, err := url.PathUnescape(u.Opaque)
	if path == "~" || strings.HasPrefix(path, "~/") { // which no shell replaces in the middle of a word
		return "", fmt.Errorf("store %s: ~ is not your home directory here; give the whole path, or file:./%s for a directory of that name: %w", storeurl.Redact(rawURL), path, driver.ErrInvalid)
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", storeurl.Invalid(rawURL, err)
	}
	u.Opaque, u.Path = "", urlPath(path)
	return u.String(), nil
}

// fileOptions are the options that name a file.
var fileOptions = []string{
	"password-file", "sentinel-password-file", "token-file", "ca", "cert", "key",
	"passfile", "sslrootcert", "sslcert", "sslkey", "servicefile",
}

// withAbsoluteFiles names the files of a URL in full. What it does not understand stays
// as it is: Open says what is wrong with it.
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

// isPath matches a path that may be shown: it has nothing of a URL.
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

func file(rawURL string) (driver.Driver, error) {
	d, err := filedriver.Open(rawURL)
	if err != nil {
		return nil, err // not a nil *Store in an interface
	}
	return d, nil
}

// service opens what another process serves.
func service(rawURL string) (driver.Driver, error) {
	d, err := httpdriver.Open(rawURL)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func memory(rawURL string) (driver.Driver, error) {
	if rawURL != Memory {
		return nil, fmt.Errorf("store %s: a store in memory has no name and no options: %w", storeurl.Redact(rawURL), driver.ErrInvalid)
	}
	return memdriver.New(), nil
}
