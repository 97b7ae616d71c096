package daemon

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
)

// Package is a [testing.TB] that lasts until End: for a server that the tests of a package share, and
// for examples. It panics where a test would fail.
type Package struct {
	testing.TB
	cleanups []func()
}

// End calls the cleanups, the last one first.
func (p *Package) End() {
	for _, f := range slices.Backward(p.cleanups) {
		f()
	}
}

// Helper implements [testing.TB].
func (*Package) Helper() {}

// Context implements [testing.TB].
func (*Package) Context() context.Context { return context.Background() }

// Failed implements [testing.TB].
func (*Package) Failed() bool { return false }

// Fatal implements [testing.TB].
func (*Package) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// Fatalf implements [testing.TB].
func (*Package) Fatalf(form string, args ...any) { panic(fmt.Sprintf(form, args...)) }

// Cleanup implements [testing.TB].
func (p *Package) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }

// TempDir implements [testing.TB].
func (p *Package) TempDir() string {
	dir, err := os.MkdirTemp("", "leasehold")
	if err != nil {
		panic(err)
	}
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
