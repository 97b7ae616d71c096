package memdriver

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// memory is how long the token of an idle room is remembered. A forgotten
// token is followed by a greater one, since the clock never steps.
const memory = time.Minute

// page is how many keys List returns at a time.
const page = 256

// table is shared by joined stores. It keeps records unencoded: encoding would make a pair
// of calls take three times as long, and six times with a thousand tickets.
type table struct {
	roomdriver.Bus
	epoch time.Time // the table's clock is monotonic from here

	mu       sync.Mutex
	rooms    map[string]*room.Record
	sweeping bool // a timer will call sweep
}

func newTable() *table { return &table{epoch: time.Now(), rooms: make(map[string]*room.Record)} }

func (t *table) join() *Driver {
	return &Driver{table: t, rooms: roomdriver.New(t, roomdriver.WithMemory(memory), roomdriver.WithSweep(0))}
}

// now returns the wall clock at the table's birth plus monotonic time since: it
// never steps.
func (t *table) now() int64 { return t.epoch.UnixMicro() + time.Since(t.epoch).Microseconds() }

// Visit takes a step on the record of key.
func (t *table) Visit(key string, step room.Step) ([]room.Wake, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	r := t.rooms[key]
	if r == nil {
		r = new(room.Record)
		t.rooms[key] = r
	}
	wakes, err := step.Step(r, now)
	if r.Token == 0 && r.Idle(now) {
		delete(t.rooms, key)
	}
	t.sweepLater()
	return wakes, err
}

// Update implements [roomdriver.Table]. The driver asks for it only if it does
// not see Visit.
func (t *table) Update(_ context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	_, err := t.Visit(key, encoded(f))
	return err
}

type encoded func(record []byte, now time.Time) (next []byte, err error)

// Step implements [room.Step].
func (f encoded) Step(r *room.Record, now int64) ([]room.Wake, error) {
	next, err := f(room.Append(nil, r, room.Never), time.UnixMicro(now))
	if err != nil {
		return nil, err
	}
	if *r = (room.Record{}); next != nil {
		*r, err = room.Decode(next)
	}
	return nil, err
}

// List implements [roomdriver.Table]; keys come in lexical order.
func (t *table) List(_ context.Context, prefix, cursor string) (roomdriver.Page, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := roomdriver.Page{Now: time.UnixMicro(t.now())}
	for _, key := range slices.Sorted(maps.Keys(t.rooms)) {
		if key <= cursor || !strings.HasPrefix(key, prefix) {
			continue
		}
		if len(p.Entries) == page {
			p.Next = p.Entries[page-1].Key
			break
		}
		p.Entries = append(p.Entries, roomdriver.Entry{Key: key, Record: room.Append(nil, t.rooms[key], room.Never)})
	}
	return p, nil
}

// Close implements [roomdriver.Table]. The rooms stay for the joined drivers.
func (t *table) Close() error { return nil }

// sweepLater schedules the removal of rooms even if no call follows. The caller holds mu.
func (t *table) sweepLater() {
	if t.sweeping || len(t.rooms) == 0 {
		return
	}
	t.sweeping = true
	time.AfterFunc(memory, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.sweeping = false
		t.sweep(t.now())
		t.sweepLater()
	})
}

// sweep forgets the rooms that have been idle for long.
func (t *table) sweep(now int64) {
	for key, r := range t.rooms {
		if r.End(memory.Milliseconds()) <= now/1000 {
			delete(t.rooms, key)
		}
	}
	if len(t.rooms) == 0 {
		t.rooms = make(map[string]*room.Record) // a map does not shrink
	}
}
