// Package example opens the store for the programs of this module.
package example

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/filedriver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
)

// Main runs one example on the store that -store or LEASEHOLD_STORE names, or
// on a directory that is removed afterwards.
func Main(run func(ctx context.Context, store *Store) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	url := flag.String("store", os.Getenv("LEASEHOLD_STORE"), "`URL` of the store: file:///path or redis://host; default a temporary directory")
	flag.Parse()
	store := &Store{url: *url}
	if store.url == "" {
		dir, err := os.MkdirTemp("", "leasehold-example-")
		store.check(err)
		store.dir = dir
	}
	store.check(run(ctx, store))
	store.end()
}

// Store is where the locks of one run are kept.
type Store struct {
	url, dir string // one of them
	clients  []*leasehold.Client
}

// Client returns a new client of the store. A program has one; the examples
// have one for each machine of their story. The log is off, since they lose leases on purpose.
// The end of the example closes the client. A store that cannot be opened ends the example.
func (s *Store) Client(opts ...leasehold.Option) *leasehold.Client {
	store, err := s.open()
	s.check(err)
	client, err := leasehold.New(store, append(opts, leasehold.WithLogger(slog.New(slog.DiscardHandler)))...)
	s.check(err)
	s.clients = append(s.clients, client)
	return client
}

func (s *Store) open() (driver.Driver, error) {
	switch {
	case s.dir != "":
		return filedriver.Open(s.dir)
	case strings.HasPrefix(s.url, "file:"):
		return filedriver.Open(s.url)
	default:
		return redisdriver.Open(s.url)
	}
}

// check ends the program if err is not nil.
func (s *Store) check(err error) {
	if err != nil {
		s.end()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (s *Store) end() {
	for _, client := range s.clients {
		client.Close()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

// Queue starts f, and returns when f waits in the queue of a lock, or has ended. The
// returned function waits for the end of f. Examples use it to fix the order of arrival.
func Queue(ctx context.Context, f func(context.Context) error) (wait func() error) {
	queued := make(chan struct{})
	ended := make(chan error, 1)
	tell := sync.OnceFunc(func() { close(queued) })
	go func() {
		defer tell()
		ended <- f(leasehold.ObserveWait(ctx, func(leasehold.WaitEvent) { tell() }))
	}()
	<-queued
	return func() error { return <-ended }
}
