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

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/filedriver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
)

// Main runs one example on the store that -store or LEASEHOLD_STORE names, or
// on a directory that is removed afterwards.
func Main(run func(ctx context.Context, store Store) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx, run); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func start(ctx context.Context, run func(context.Context, Store) error) error {
	url := flag.String("store", os.Getenv("LEASEHOLD_STORE"), "`URL` of the store: file:///path or redis://host; default a temporary directory")
	flag.Parse()
	if *url != "" {
		return run(ctx, Store{url: *url})
	}
	dir, err := os.MkdirTemp("", "leasehold-example-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return run(ctx, Store{dir: dir})
}

// Store is where the locks of one run are kept.
type Store struct{ url, dir string }

// Client returns a new client of the store. A program has one; the examples
// have one for each machine of their story. The log is off, since they lose leases on purpose.
func (s Store) Client(opts ...leasehold.Option) (*leasehold.Client, error) {
	store, err := s.open()
	if err != nil {
		return nil, err
	}
	return leasehold.New(store, append(opts, leasehold.WithLogger(slog.New(slog.DiscardHandler)))...)
}

func (s Store) open() (driver.Driver, error) {
	switch {
	case s.dir != "":
		return filedriver.Open(s.dir)
	case strings.HasPrefix(s.url, "file:"):
		return filedriver.Open(s.url)
	default:
		return redisdriver.Open(s.url)
	}
}
