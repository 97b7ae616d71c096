package explore_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// rows is a table of the least that a table can be.
type rows struct {
	roomdriver.Bus
	ahead time.Duration // by how much its clock is

	mu      sync.Mutex
	records map[string][]byte
}

func (r *rows) now() time.Time { return time.Now().Add(r.ahead) }

func (r *rows) Update(_ context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := f(slices.Clone(r.records[key]), r.now())
	if err != nil {
		return err
	}
	if next == nil {
		delete(r.records, key)
	} else {
		r.records[key] = slices.Clone(next)
	}
	return nil
}

func (r *rows) List(_ context.Context, prefix, _ string) (roomdriver.Page, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	page := roomdriver.Page{Now: r.now()}
	for _, key := range slices.Sorted(maps.Keys(r.records)) {
		if strings.HasPrefix(key, prefix) {
			page.Entries = append(page.Entries, roomdriver.Entry{Key: key, Record: r.records[key]})
		}
	}
	return page, nil
}

func (r *rows) Close() error { return nil }

// forget empties the table.
func (r *rows) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.records)
}
