package filedriver

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// Option configures [Open].
type Option func(*config)

type config struct {
	mode    fs.FileMode
	timeout time.Duration
	prefix  string
	machine machine
	watch   func() (*fileWatch, error)
}

// WithMode sets the permissions of directories that Open makes, 0700 by default: locks of
// one user. Files get the same without the execute bits, whatever the umask is. Set 0770
// in all processes to share the directory with a group: new files belong to the
// directory's group, whose members are all trusted. The owner must have all rights.
func WithMode(mode fs.FileMode) Option { return func(c *config) { c.mode = mode } }

// WithTimeout bounds how long a call waits for a file lock, in addition to its context:
// 10 ms to 1 min, 2 s by default. A lock is held for microseconds, unless its process was
// stopped.
func WithTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithPrefix sets a prefix for every key, empty by default: at most 512 bytes of UTF-8
// without control characters. Stores with different prefixes share a directory, but no lock.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

func newConfig(options []Option) (config, error) {
	c := config{mode: 0o700, timeout: 2 * time.Second, watch: newFileWatch}
	for _, option := range options {
		option(&c)
	}
	if c.mode&^0o777 != 0 || c.mode&0o700 != 0o700 {
		return c, fmt.Errorf("mode %#o is not of the form 07xx: %w", uint32(c.mode), driver.ErrInvalid)
	}
	err := cmp.Or(check.Range("timeout", c.timeout, 10*time.Millisecond, time.Minute), check.Text("prefix", c.prefix, 0, 512))
	if err == nil && c.machine.elapsed == nil {
		c.machine, err = thisMachine()
	}
	return c, err
}

// parseLocation returns the directory of a path or URL, and the options of a URL.
func parseLocation(location string) (dir string, options []Option, err error) {
	if !strings.HasPrefix(location, "file:") && (!strings.Contains(location, "://") || strings.HasPrefix(location, "./")) {
		return location, nil, nil
	}
	if dir, options, err = partsOf(location); err != nil {
		return "", nil, fmt.Errorf("store URL %s: %w: %w", storeurl.Redact(location), err, driver.ErrInvalid)
	}
	return dir, options, nil
}

func partsOf(rawURL string) (dir string, options []Option, err error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "", nil, errors.New("not a URL; percent-encode special characters in the path")
	}
	switch {
	case u.Scheme != "file":
		return "", nil, errors.New("not a file URL")
	case u.Host != "" && u.Host != "localhost", u.User != nil, u.Fragment != "":
		return "", nil, errors.New("it names more than a path; a path takes three slashes, as in file:///var/lib/leasehold")
	}
	if dir, err = urlPath(u); err != nil {
		return "", nil, err
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", nil, errors.New("the text after the question mark is not of the form name=value&name=value")
	}
	for name, value := range values {
		option, err := urlOption(name, value[0])
		if err == nil && len(value) > 1 {
			err = fmt.Errorf("%s is given twice", name)
		}
		if err != nil {
			return "", nil, storeurl.Reason(rawURL, err)
		}
		options = append(options, option)
	}
	return dir, options, nil
}

func urlPath(u *url.URL) (string, error) {
	path := u.Path
	if u.Opaque != "" {
		unescaped, err := url.PathUnescape(u.Opaque)
		if err != nil {
			return "", errors.New("a % is written as %25")
		}
		path = unescaped
	}
	if path == "" {
		return "", errors.New("it names no directory")
	}
	if runtime.GOOS == "windows" && len(path) > 2 && path[0] == '/' && path[2] == ':' {
		path = strings.TrimPrefix(path, "/")
	}
	return filepath.FromSlash(path), nil
}

func urlOption(name, value string) (Option, error) {
	switch name {
	case "prefix":
		return WithPrefix(value), nil
	case "timeout":
		d, err := time.ParseDuration(value)
		if err != nil {
			return nil, fmt.Errorf("timeout %q is not a duration such as 2s", value)
		}
		return WithTimeout(d), nil
	case "mode":
		mode, err := strconv.ParseUint(value, 8, 32)
		if err != nil {
			return nil, fmt.Errorf("mode %q is not octal", value)
		}
		return WithMode(fs.FileMode(mode)), nil
	}
	return nil, fmt.Errorf("unknown parameter %q; known are prefix, timeout and mode", name)
}
