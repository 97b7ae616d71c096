// Package stores opens a store by its URL, for the command and the service.
// The library never imports it: its users name the one store that they want.
package stores

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/filedriver"
	"github.com/leasehold-go/leasehold/httpdriver"
	"github.com/leasehold-go/leasehold/internal/redisurl"
	"github.com/leasehold-go/leasehold/memdriver"
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
	return nil, fmt.Errorf("store %s: unknown kind %q; known are %s, %s: %w", Redact(rawURL), scheme, Examples(", "), Memory, driver.ErrInvalid)
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
		return rawURL, err
	}
	u, err := url.Parse(rawURL)
	if err != nil || u.Opaque == "" {
		return rawURL, nil // Open says what is wrong with it, if anything
	}
	path, err := url.PathUnescape(u.Opaque)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("store %s: %w: %w", rawURL, driver.ErrInvalid, err)
	}
	u.Opaque, u.Path = "", urlPath(path)
	return u.String(), nil
}

// Redact hides what may be secret in a URL: user, password and options. Several
// hosts may stand in it, which net/url does not know.
func Redact(rawURL string) string {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		return rawURL // nobody to log in as
	}
	rest, _, _ = strings.Cut(rest, "?")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = "***" + rest[at:]
	}
	return scheme + "://" + rest
}

func schemeOf(rawURL string) (string, error) {
	scheme, _, ok := strings.Cut(rawURL, ":")
	if !ok || strings.Contains(scheme, "/") {
		return "", fmt.Errorf("store %q is not a URL; a directory is file:%[1]s, and known are %s: %w", rawURL, Examples(", "), driver.ErrInvalid)
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
		return nil, fmt.Errorf("store %q: a store in memory has no name and no options: %w", rawURL, driver.ErrInvalid)
	}
	return memdriver.New(), nil
}
