package server

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// A lock with many holders has large states. The stream of a slow client must not store thousands
// of them.
func TestStream_KeepsABoundedSizeOfEvents(t *testing.T) {
	f := &stream{more: make(chan struct{}, 1), first: 1}
	const n, large = 3000, 1 << 20
	state := make(json.RawMessage, large)
	for range n {
		f.push(message{wire.EventLock, state})
	}
	events, first := f.pull(0)
	if len(events) != backlogBytes/large || int(first)+len(events) != n+1 {
		t.Errorf("%d events from number %d on are kept", len(events), first)
	}
	f.push(message{wire.EventLock, json.RawMessage(make([]byte, 2*backlogBytes))})
	f.push(message{wire.EventReady, nil})
	if events, first = f.pull(n + 1); len(events) != 1 || events[0].name != wire.EventReady || first != n+2 {
		t.Errorf("after a state that is too large: %d events from number %d on", len(events), first)
	}
	if kept := cap(f.log); f.bytes != 0 || kept > backlog {
		t.Errorf("%d bytes are counted, %d events have room", f.bytes, kept)
	}
}

// tally is a store that measures the time between two looks at a lock.
type tally struct {
	*memdriver.Driver
	mu    sync.Mutex
	last  map[string]time.Time
	pause time.Duration // the sum
	n     int
}

func (c *tally) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if last, ok := c.last[key]; ok {
		c.pause, c.n = c.pause+now.Sub(last), c.n+1
	}
	c.last[key] = now
	return c.Driver.Inspect(ctx, key)
}

// Streams may follow many locks. The service must then ask about each less than twice a second.
func TestWatchers_LookAtABoundedPace(t *testing.T) {
	for locks, want := range map[int]time.Duration{10: 500 * time.Millisecond, 1000: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := &tally{Driver: memdriver.New(), last: make(map[string]time.Time)}
			s, err := New(store)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for i := range locks {
				for range 2 { // they share a watcher
					defer s.watchers.watch("k"+strconv.Itoa(i), func(sight) {})()
				}
			}
			time.Sleep(2 * time.Second) // the first looks are at once
			store.mu.Lock()
			store.pause, store.n = 0, 0
			store.mu.Unlock()
			time.Sleep(4 * time.Second)
			store.mu.Lock()
			defer store.mu.Unlock()
			if pause := store.pause / time.Duration(max(store.n, 1)); pause < want*9/10 || pause > want*11/10 {
				t.Errorf("%d locks: a look every %v, want %v", locks, pause, want)
			}
		})
	}
}
