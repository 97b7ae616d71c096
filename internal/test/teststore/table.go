// Package teststore has stores in memory for tests in virtual time: a table under
// driver/roomdriver, and a Redis server that runs the real scripts in the interpreter of
// internal/test/microscope. Both can forget, and return to an earlier state.
package teststore

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

// Table is a table of encoded records, as PostgreSQL has one. It is safe for concurrent
// use.
type Table struct {
	roomdriver.Bus
	now func() time.Time

	mu      sync.Mutex
	records map[string][]byte
	kept    map[string][]byte
}

// NewTable returns an empty table with the clock now.
func NewTable(now func() time.Time) *Table {
	return &Table{now: now, records: make(map[string][]byte)}
}

// Join returns another driver of the table.
func (t *Table) Join() *roomdriver.Driver { return roomdriver.New(t, roomdriver.WithSweep(0)) }

// Update implements [roomdriver.Table].
func (t *Table) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	next, err := f(slices.Clone(t.records[key]), t.now())
	if err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if next == nil {
		delete(t.records, key)
	} else {
		t.records[key] = slices.Clone(next)
	}
	return nil
}

// List implements [roomdriver.Table]. All records are on one page.
func (t *Table) List(_ context.Context, prefix, _ string) (roomdriver.Page, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	page := roomdriver.Page{Now: t.now()}
	for _, key := range slices.Sorted(maps.Keys(t.records)) {
		if strings.HasPrefix(key, prefix) {
			page.Entries = append(page.Entries, roomdriver.Entry{Key: key, Record: t.records[key]})
		}
	}
	return page, nil
}

// Close implements [roomdriver.Table].
func (t *Table) Close() error { return nil }

// Keep stores the present state, to which GoBack returns.
func (t *Table) Keep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = maps.Clone(t.records)
}

// GoBack returns to the state that Keep stored.
func (t *Table) GoBack() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.records = maps.Clone(t.kept)
}

// Forget removes all records.
func (t *Table) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.records)
}
