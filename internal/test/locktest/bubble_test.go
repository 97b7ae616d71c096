package locktest_test

import (
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/internal/test/pipenet"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/internal/test/teststore"
	"github.com/leasehold-go/leasehold/server"
)

// The stores on which all cases are played in virtual time.

func TestMemory(t *testing.T) { run(t, memory, remembers) }

func memory(testing.TB) Store {
	store := memdriver.New()
	return Store{Open: func(testing.TB) driver.Driver { return store.Join() }}
}

// remembers reports whether a case can be played on a store that never forgets.
func remembers(name string) bool { return !strings.HasPrefix(name, "R2_") }

func TestTable(t *testing.T) { run(t, table, all) }

func table(testing.TB) Store {
	store := teststore.NewTable(time.Now)
	return Store{
		Open:  func(testing.TB) driver.Driver { return store.Join() },
		Flush: store.Forget,
	}
}

// ofQuorum matches the cases that a majority of stores can pass: a majority has no places of
// semaphores, and no order of waiters.
var ofQuorum = regexp.MustCompile(`^(L|K[12356]_|K11_Opposite|K12_Cancelled|(W3|W12)_.*/(mutex|reader|writer)$|Refusals_(OfAFree|OfDowngrades|EndNothing))`)

func TestQuorum(t *testing.T) { run(t, quorum, ofQuorum.MatchString) }

func quorum(testing.TB) Store {
	var stores []*memdriver.Driver
	for range 3 {
		stores = append(stores, memdriver.New())
	}
	return Store{Open: func(tb testing.TB) driver.Driver {
		var nodes []driver.Driver
		for _, s := range stores {
			nodes = append(nodes, s.Join())
		}
		q, err := quorumdriver.New(nodes)
		if err != nil {
			tb.Fatal(err)
		}
		return q
	}}
}

// With -short and the race detector only a crowd is played, since the detector makes HTTP slow.
func TestService(t *testing.T) {
	selected := all
	if skip.Race && testing.Short() {
		selected = func(name string) bool { return strings.HasPrefix(name, "W1_") }
	}
	run(t, func(tb testing.TB) Store { return service(tb, table(tb)) }, selected)
}

// service starts a service of a store, with all connections in memory.
func service(tb testing.TB, behind Store) Store {
	listener := pipenet.Listen()
	serve(tb, behind.Open(tb), listener)
	behind.Open = func(tb testing.TB) driver.Driver {
		transport := &http.Transport{DialContext: listener.Dial, DisableCompression: true}
		tb.Cleanup(transport.CloseIdleConnections)
		d, err := httpdriver.Open("http://service", httpdriver.WithClient(&http.Client{Transport: transport}))
		if err != nil {
			tb.Fatal(err)
		}
		return d
	}
	return behind
}

// serve runs a service of a store, and closes both at the end of the test.
func serve(tb testing.TB, store driver.Driver, listener net.Listener) {
	tb.Helper()
	s, err := server.New(store)
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener, nil) }()
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
		if err := <-done; err != http.ErrServerClosed { //nolint:errorlint // it is this one
			tb.Error(err)
		}
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	})
}
