package filedriver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/await"
)

// fake is a machine with clocks that stand still until the test moves them.
type fake struct {
	boot    string
	elapsed atomic.Int64 // ns
	wall    atomic.Int64 // µs
}

func newFake() *fake {
	f := &fake{boot: "boot-1"}
	f.elapsed.Store(int64(time.Hour))
	f.wall.Store(time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro())
	return f
}

func (f *fake) advance(d time.Duration) { f.elapsed.Add(int64(d)) }

// reboot restarts the machine, a minute later.
func (f *fake) reboot(boot string) {
	f.boot = boot
	f.wall.Add(time.Duration(f.elapsed.Swap(int64(time.Second))).Microseconds() + time.Minute.Microseconds())
}

func (f *fake) option() Option {
	return func(c *config) {
		c.machine = machine{
			boot:    f.boot,
			elapsed: func() time.Duration { return time.Duration(f.elapsed.Load()) },
			wall:    func() time.Time { return time.UnixMicro(f.wall.Load()) },
		}
	}
}

// open opens a store, which is closed at the end of the test. It waits a minute for file locks,
// unless the options have another time.
func open(t *testing.T, dir string, options ...Option) *Driver {
	t.Helper()
	s, err := Open(dir, append([]Option{WithTimeout(time.Minute)}, options...)...)
	noError(t, err)
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

// removeAll removes a part of a directory in use, although a sweep may add files to it.
func removeAll(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); os.RemoveAll(path) != nil; {
		if time.Now().After(end) {
			t.Fatalf("%s is not removed", path)
		}
	}
}

func closeStore(t *testing.T, s *Driver) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error("close:", err)
	}
}

// refused fails the test unless Open refuses the directory with this error, and with advice that
// contains a text.
func refused(t *testing.T, dir string, want error, advice string, options ...Option) {
	t.Helper()
	s, err := Open(dir, options...)
	if err == nil {
		closeStore(t, s)
	}
	if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), advice) {
		t.Errorf("open %q: %v; want it refused, with %q", dir, err, advice)
	}
}

// grant acquires and fails the test if that is refused.
func grant(t *testing.T, s *Driver, req driver.Request) driver.Reply {
	t.Helper()
	if req.TTL == 0 {
		req.TTL = time.Minute
	}
	return ask.Acquire(t, s, req, driver.Granted)
}

// busy fails the test unless the key has a holder.
func busy(t *testing.T, s *Driver, key string) {
	t.Helper()
	ask.Acquire(t, s, ask.Mutex(key, "other"), driver.Busy)
}

var (
	noError = ask.NoError
	release = ask.Release
)

func renew(t *testing.T, s *Driver, key, id string) {
	t.Helper()
	ask.Renew(t, s, driver.Granted, driver.Ref{Key: key, ID: id, TTL: time.Hour})
}

// files returns the files below a directory, by their path relative to it.
func files(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, strings.TrimPrefix(path, root+string(filepath.Separator)))
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return found
}

// eventually waits for an effect of another goroutine or process.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	await.Until(t, happened, what)
}
