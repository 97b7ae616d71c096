package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
)

// harness replaces the test that a server of internal/test belongs to.
type harness struct {
	testing.TB
	cleanups []func()
}

// failure is the value of a panic of [check]. [harness.attempt] returns it as an error.
type failure struct{ error }

// check ends an attempt if err is not nil.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// need returns value, or ends an attempt if err is not nil.
func need[T any](value T, err error) T {
	check(err)
	return value
}

// attempt calls f, and then the functions that f has left for a cleanup. It returns the failure of f.
func (h *harness) attempt(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	before := len(h.cleanups)
	defer func() {
		for _, clean := range slices.Backward(h.cleanups[before:]) {
			clean()
		}
		h.cleanups = h.cleanups[:before]
	}()
	f()
	return nil
}

func (h *harness) Helper()                   {}
func (h *harness) Failed() bool              { return false }
func (h *harness) Cleanup(f func())          { h.cleanups = append(h.cleanups, f) }
func (h *harness) Logf(string, ...any)       {}
func (h *harness) Fatal(a ...any)            { check(errors.New(fmt.Sprint(a...))) }
func (h *harness) Fatalf(f string, a ...any) { check(fmt.Errorf(f, a...)) }

func (h *harness) Errorf(format string, a ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", a...)
}

func (h *harness) TempDir() string {
	dir := need(os.MkdirTemp("", "leasehold-bench-"))
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
