package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
)

// harness replaces the test that a server of internal/test belongs to. A failure panics, and
// [attempt] returns it as an error.
type harness struct {
	testing.TB
	cleanups []func()
}

// failure is the value of a panic of a harness.
type failure struct{ error }

func (h *harness) Helper()          {}
func (h *harness) Failed() bool     { return false }
func (h *harness) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }
func (h *harness) Errorf(format string, a ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", a...)
}
func (h *harness) Logf(string, ...any)            {}
func (h *harness) Fatal(a ...any)                 { panic(failure{errors.New(fmt.Sprint(a...))}) }
func (h *harness) Fatalf(format string, a ...any) { panic(failure{fmt.Errorf(format, a...)}) }

func (h *harness) TempDir() string {
	dir, err := os.MkdirTemp("", "leasehold-bench-")
	h.must(err)
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (h *harness) must(err error) {
	if err != nil {
		h.Fatal(err)
	}
}

// close ends the servers.
func (h *harness) close() {
	for _, f := range slices.Backward(h.cleanups) {
		f()
	}
}

// attempt calls f, and returns the failure of a harness as an error.
func attempt(f func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	return f()
}
