package quorumdriver_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
)

// table is a store of three verbs.
type table struct {
	mu   sync.Mutex
	rows map[string]entry
}

type entry struct {
	id  string
	end time.Time
}

func (t *table) SetNX(_ context.Context, key, id string, ttl time.Duration) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().Before(t.rows[key].end) {
		return false, nil
	}
	t.rows[key] = entry{id, time.Now().Add(ttl)}
	return true, nil
}

func (t *table) Renew(_ context.Context, key, id string, ttl time.Duration) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, now := t.rows[key], time.Now()
	if e.id != id || !now.Before(e.end) {
		return false, nil
	}
	if end := now.Add(ttl); end.After(e.end) {
		t.rows[key] = entry{id, end}
	}
	return true, nil
}

func (t *table) Delete(_ context.Context, key, id string) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.rows[key]; e.id != id || !time.Now().Before(e.end) {
		return false, nil
	}
	delete(t.rows, key)
	return true, nil
}

// client2 is a client of the library, as a process of its own has it.
func process(t testing.TB, all []*server) *leasehold.Client {
	t.Helper()
	c, err := leasehold.New(quorumOf(t, all))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
