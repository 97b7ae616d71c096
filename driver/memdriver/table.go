package memdriver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// memory is the time between two removals of rooms whose leases have expired. A room that is
// only left for a token far ahead of the clock stays until memory after the time of the token.
const memory = time.Minute

// page is how many keys List returns at a time.
const page = 256

// table is shared by joined stores. It keeps records unencoded: encoding would make a pair
// of calls take three times as long, and six times with a thousand tickets.
type table struct {
	roomdriver.Bus
	epoch time.Time // the table's clock is monotonic from here

	mu       sync.Mutex
	token    int64 // the counter: the last token, unless a caller demanded one far ahead
	rooms    map[string]*room.Record
	spare    *room.Record // empty; to spare an allocation
	sweeping bool         // a timer will call sweep
}

func newTable() *table { return &table{epoch: time.Now(), rooms: make(map[string]*room.Record)} }

func (t *table) join() *Driver {
	return &Driver{table: t, rooms: roomdriver.New(t, roomdriver.WithSweep(0))}
}

// now returns the wall clock at the table's birth plus monotonic time since: it
// never steps.
func (t *table) now() int64 { return t.epoch.UnixMicro() + time.Since(t.epoch).Microseconds() }

// Visit takes a step on the record of key.
func (t *table) Visit(_ context.Context, key, _, mark string, step room.Step) ([]room.Wake, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	r := t.rooms[key]
	if r == nil {
		r, t.spare = t.spare, nil
		if r == nil {
			r = new(room.Record)
		}
		t.rooms[key] = r
	}
	r.Store = room.Store{Next: max(t.token+1, now)}
	if m := t.rooms[mark]; m != nil {
		r.Store.Marked = m.IsMark(now)
	}
	wakes, err := step.Step(r, now)
	if r.Token <= now+room.Lead {
		t.token = max(t.token, r.Token)
	}
	if r.Token <= t.token && r.Idle(now) {
		delete(t.rooms, key)
		if cap(r.Inside) <= 16 {
			*r = room.Record{Inside: r.Inside[:0]}
			t.spare = r
		}
	}
	t.sweepLater()
	return wakes, err
}

// Update implements [roomdriver.Table]. The driver calls Visit in its place.
func (t *table) Update(context.Context, string, func([]byte, time.Time) ([]byte, error)) error {
	return errors.ErrUnsupported
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
		if r.Token <= t.token && r.Until() <= now/1000 || r.End(memory.Milliseconds()) <= now/1000 {
			delete(t.rooms, key)
		}
	}
	if len(t.rooms) == 0 {
		t.rooms = make(map[string]*room.Record) // a map does not shrink
	}
}
