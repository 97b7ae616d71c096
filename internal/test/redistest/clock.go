//go:build linux

package redistest

import (
	"cmp"
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

//go:embed shim/clock.c
var clockShim string

// Clock is the wall clock of one server: its keys expire by it, and its
// scripts read it. It may be stepped from any goroutine.
type Clock struct {
	tb   testing.TB
	file *os.File

	mu    sync.Mutex
	ahead time.Duration
}

// StartWithClock is [Start] for a server with a wall clock that can be stepped, also
// while it runs. A restart keeps the offset. It needs a C compiler,
// since the clock is a library that is loaded before the libraries of the server.
func StartWithClock(tb testing.TB, args ...string) (*Server, *Clock) {
	tb.Helper()
	c, env := NewClock(tb, tb.TempDir())
	return start(tb, &Server{env: env}, slices.Concat(defaults, args)), c
}

// NewClock returns a clock, and the environment for a process that uses it. The process must
// be able to read the directory.
func NewClock(tb testing.TB, dir string) (c *Clock, env []string) {
	tb.Helper()
	file, err := os.Create(filepath.Join(dir, "clock"))
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	tb.Cleanup(func() { _ = file.Close() })
	c = &Clock{tb: tb, file: file}
	c.Step(0)
	c.write(8, 0)
	return c, []string{"LD_PRELOAD=" + compile(tb, dir, "clock", clockShim), "REDISTEST_CLOCK=" + file.Name()}
}

// compile makes a shared library of C text and returns its path.
func compile(tb testing.TB, dir, name, text string) string {
	tb.Helper()
	compiler := strings.Fields(cmp.Or(os.Getenv("CC"), "cc"))
	lib := filepath.Join(dir, name+".so")
	args := append(compiler[1:], "-shared", "-fPIC", "-O2", "-Wall", "-o", lib, write(tb, dir, name+".c", text))
	if out, err := exec.Command(compiler[0], args...).CombinedOutput(); err != nil {
		tb.Fatalf("redistest: %s: %v: the tests need a C compiler; `make test` installs it\n%s", compiler[0], err, out)
	}
	return lib
}

// Step moves the clock by d at once, backward if d is negative. A clock that is held
// stays where it is.
func (c *Clock) Step(d time.Duration) {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
	c.write(0, int64(c.ahead))
}

// Hold stops the clock at the given time, until the next Hold.
func (c *Clock) Hold(at time.Time) {
	c.tb.Helper()
	c.write(8, at.UnixNano())
}

// write sets a word of the file, which the processes read at any time.
func (c *Clock) write(at int64, ns int64) {
	c.tb.Helper()
	word := binary.NativeEndian.AppendUint64(nil, uint64(ns)) //nolint:gosec // two's complement
	if _, err := c.file.WriteAt(word, at); err != nil {
		c.tb.Errorf("redistest: set the clock: %v", err)
	}
}
