package server

import (
	"context"
	"encoding/json"
	"strconv"
	"sync/atomic"
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

// tally is a store that counts the looks at its locks.
type tally struct {
	*memdriver.Driver
	looks atomic.Int64
}

func (c *tally) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	c.looks.Add(1)
	return c.Driver.Inspect(ctx, key)
}

// Streams may follow many locks. The service must then ask about each less than twice a second.
func TestWatchers_LookAtABoundedPace(t *testing.T) {
	for locks, want := range map[int]int64{10: 20, 500: 1000, 2000: 1000} {
		synctest.Test(t, func(t *testing.T) {
			store := &tally{Driver: memdriver.New()}
			s, err := New(store)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for i := range locks {
				first := s.watchers.watch("k" + strconv.Itoa(i))
				defer first.leave()
				second := s.watchers.watch("k" + strconv.Itoa(i)) // shares the watcher of the first
				defer second.leave()
			}
			time.Sleep(2 * time.Second) // the first looks are at once
			before := store.looks.Load()
			time.Sleep(10 * time.Second)
			if each := (store.looks.Load() - before) / 10; each < want*9/10 || each > want*11/10 {
				t.Errorf("%d locks: %d looks a second, want %d", locks, each, want)
			}
		})
	}
}
