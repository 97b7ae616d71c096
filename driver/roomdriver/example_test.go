package roomdriver_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// shelf is a complete table: records in the memory of one process. The Bus, which
// the drivers of one shelf share, wakes waiters.
type shelf struct {
	roomdriver.Bus
	mu      sync.Mutex
	records map[string][]byte
}

func (s *shelf) Update(_ context.Context, key string, f func(record []byte, now time.Time) ([]byte, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := f(s.records[key], time.Now())
	if err != nil {
		return err
	}
	if next == nil {
		delete(s.records, key)
	} else {
		s.records[key] = next
	}
	return nil
}

func (s *shelf) List(_ context.Context, prefix, _ string) (roomdriver.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page := roomdriver.Page{Now: time.Now()}
	for _, key := range slices.Sorted(maps.Keys(s.records)) {
		if strings.HasPrefix(key, prefix) {
			page.Entries = append(page.Entries, roomdriver.Entry{Key: key, Record: s.records[key]})
		}
	}
	return page, nil
}

func (s *shelf) Close() error { return nil }

// Three methods make a store of every kind of lock. A program gives the driver to
// leasehold.New; here it is asked by hand. A table in a database is in
// examples/sqlitestore.
func ExampleNew() {
	ctx := context.Background()
	table := &shelf{records: make(map[string][]byte)}
	a, b := roomdriver.New(table), roomdriver.New(table) // as two processes
	defer a.Close()
	defer b.Close()

	granted := make(chan driver.Hint, 1)
	hints, err := b.Watch(func(h driver.Hint) {
		if h.Kind == driver.HintGranted {
			granted <- h
		}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hints.Close()

	first, _ := a.Acquire(ctx, driver.Request{Key: "orders/42", ID: "lease-1", TTL: time.Minute})
	second, _ := b.Acquire(ctx, driver.Request{
		Key: "orders/42", ID: "lease-2", TTL: time.Minute, TicketTTL: time.Minute, ConfirmWindow: time.Second, HintAddress: hints.Address(),
	})
	fmt.Println(first.State == driver.Granted, second.State == driver.Queued, second.Position)

	_, _ = a.Release(ctx, driver.Ref{Key: "orders/42", ID: "lease-1"})
	hint := <-granted
	fmt.Println(hint.ID, hint.Token > first.Token)
	// Output:
	// true true 1
	// lease-2 true
}
