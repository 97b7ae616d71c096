package driver_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
)

// twice is a driver in two wrappers, one in the other.
func twice(d driver.Driver) driver.Driver {
	return &counted{Wrapper: driver.Wrapper{Driver: driver.Wrapper{Driver: d}}}
}

// newClient returns a client on a store, which it closes with the test.
func newClient(t *testing.T, d driver.Driver) *leasehold.Client {
	t.Helper()
	c, err := leasehold.New(d)
	noError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestConformance_HR_F12_WrappedStoreIsAsGoodAsItIsBare(t *testing.T) {
	var store *memdriver.Driver
	drivertest.Run(t, drivertest.Config{
		Open: func(testing.TB) driver.Driver { return twice(store.Join()) },
		Wrap: func(t *testing.T, row func(*testing.T)) {
			synctest.Test(t, func(t *testing.T) {
				store = memdriver.New()
				row(t)
			})
		},
	})
}

func TestWrapper_HR_F12_WaiterBehindItIsWoken(t *testing.T) {
	c := newClient(t, twice(memdriver.New()))
	outer, err := c.Mutex("k").Lock(t.Context())
	noError(t, err)
	served := make(chan error, 1)
	go func() {
		l, err := c.Mutex("k").Lock(t.Context())
		if err == nil {
			err = l.Release()
		}
		served <- err
	}()
	for {
		snap, err := c.Inspect(t.Context(), "k")
		noError(t, err)
		if len(snap.Waiters) == 1 && snap.Waiters[0].Remaining > 5*time.Second {
			break // it has an address: a ticket of a waiter that polls is shorter
		}
	}
	noError(t, outer.Release())
	noError(t, <-served)
}

func TestWrapper_HR_F12_WhatTheStoreCannotDoIsSaidBeforehand(t *testing.T) {
	d := twice(driver.FromBasic(new(table)))
	if err := driver.Supports(d, driver.Request{Mode: driver.Shared}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, want that shared locks are refused", err)
	}
	if _, ok := driver.As[driver.Inspector](d); ok {
		t.Error("a store that cannot be inspected can be behind a wrapper")
	}
	c := newClient(t, d)
	if _, err := c.RWMutex("k").RLock(t.Context()); !errors.Is(err, leasehold.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	if _, ok := driver.As[driver.DeadlineAware](d); ok {
		t.Error("the wrapper is DeadlineAware, but only a driver itself can promise that")
	}
	if _, ok := driver.As[driver.Watcher](driver.Wrapper{}); ok {
		t.Error("an empty wrapper is a Watcher")
	}
}

func TestWrapper_HR_F12_NodesOfAQuorumMayBeWrapped(t *testing.T) {
	var nodes []driver.Driver
	for range 3 {
		nodes = append(nodes, twice(memdriver.New()))
	}
	d, err := quorumdriver.New(nodes)
	noError(t, err)
	c := newClient(t, d)
	l, err := c.Mutex("k").Lock(t.Context())
	noError(t, err)
	snap, err := c.Inspect(t.Context(), "k")
	if err != nil || len(snap.Holders) != 1 {
		t.Fatalf("%+v, %v", snap, err)
	}
	noError(t, c.Break(t.Context(), "k", l.ID(), "a test"))
	if err := l.Release(); !errors.Is(err, leasehold.ErrBroken) {
		t.Error(err)
	}
}
