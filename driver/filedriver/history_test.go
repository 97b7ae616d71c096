package filedriver

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// TestHistory_AgreesWithARecordInMemory plays random calls on a store and on
// records in memory. The rule is the same function, so what is tested is what
// lies between: encoding, files, removal of idle rooms, sweeps, the clock,
// reopening and reboots. SEED repeats a history.
func TestHistory_AgreesWithARecordInMemory(t *testing.T) {
	steps := 50_000
	if testing.Short() {
		steps = 5_000
	}
	seed := rand.Uint64()
	if text := os.Getenv("SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("SEED=%d", seed)
	h := newHistory(t, seed)
	for i := range steps {
		h.step()
		if t.Failed() {
			t.Fatalf("step %d of SEED=%d", i, seed)
		}
	}
	h.drain()
}

type history struct {
	*testing.T
	rand   *rand.Rand
	fake   *fake
	dir    string
	store  *Driver
	model  map[string]*room.Record
	tokens map[string]int64 // the greatest of each key
	nid    int
}

var historyKeys = []string{"a", "A", "orders/42", "key with spaces", "ключ", string(make([]rune, 0)) + "{x}:y"}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		T: t, rand: rand.New(rand.NewPCG(seed, 0)), fake: newFake(), dir: t.TempDir(),
		model: make(map[string]*room.Record), tokens: make(map[string]int64),
	}
	h.reopen()
	t.Cleanup(func() { closeStore(t, h.store) })
	return h
}

// reopen opens the store anew, without what it does by itself in the background
// and so at times that the model cannot know.
func (h *history) reopen() {
	if h.store != nil {
		closeStore(h.T, h.store)
	}
	var err error
	if h.store, err = Open(h.dir, h.fake.option()); err != nil {
		h.Fatal(err)
	}
	h.store.sweepInterval.Store(math.MaxInt64)
	h.store.idleFiles.closed = true
}

func (h *history) step() {
	switch n := h.rand.IntN(1000); {
	case n < 100:
		h.fake.advance(time.Duration(h.rand.Int64N(int64(40 * time.Millisecond))))
	case n < 103:
		h.fake.advance(time.Duration(h.rand.Int64N(int64(2 * time.Minute))))
	case n < 110:
		h.fake.wall.Add(h.rand.Int64N(2e12) - 1e12) // steps by up to 12 days
	case n < 115:
		h.reopen()
	case n < 116:
		h.reboot()
	case n < 120:
		h.store.sweep()
		h.forgetSwept("")
	default:
		h.call(historyKeys[h.rand.IntN(len(historyKeys))])
	}
	h.fake.advance(time.Microsecond)
}

// reboot restarts the machine: no process lives on, the time since boot starts anew,
// and the wall clock has gone on, so that nobody takes the new boot for the old one.
func (h *history) reboot() {
	closeStore(h.T, h.store)
	h.store = nil
	h.fake.boot = fmt.Sprintf("boot-%d", h.rand.Int())
	before := time.Duration(h.fake.elapsed.Swap(h.rand.Int64N(int64(time.Minute))))
	h.fake.wall.Add((before + 2*time.Minute).Microseconds())
	clear(h.model)
	h.reopen()
}

// call makes one random call on both.
func (h *history) call(key string) {
	want := h.model[key]
	if want == nil {
		want = new(room.Record)
		h.model[key] = want
	}
	once, act := h.action(key, want)
	var got, expected outcome
	err := h.store.update(context.Background(), key, once, func(r *room.Record, now int64) []room.Wake {
		got = act(r, now)
		expected = act(want, now)
		return nil
	})
	if err != nil {
		h.Errorf("%q: %v", key, err)
	}
	if !reflect.DeepEqual(plainly(h.T, got), plainly(h.T, expected)) {
		h.Errorf("%q: the store answered\n%+v\nthe record in memory\n%+v", key, got, expected)
	}
	if token := got.Reply.Token; got.fresh && token <= h.tokens[key] {
		h.Errorf("%q: token %d after %d", key, token, h.tokens[key])
	}
	h.tokens[key] = max(h.tokens[key], got.Reply.Token)
	h.forgetSwept(key)
}

// outcome is what a call gives rise to.
type outcome struct {
	Reply driver.Reply
	Wakes []room.Wake
	Snap  driver.Snapshot
	Err   string
	fresh bool // the reply grants to one who was not inside
}

// plainly is a value without the difference between nil and empty.
func plainly(t *testing.T, o outcome) string {
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// action draws a call; it can be made on two records. once is the id of which it
// asks whether it was released.
func (h *history) action(key string, seen *room.Record) (once string, act func(*room.Record, int64) outcome) {
	ref := driver.Ref{
		Key: key, ID: h.someID(seen), TTL: h.duration(100), TicketTTL: h.duration(80),
		HintAddress: h.notify(), KeepClosed: h.maybe(30), RejectIDFor: h.maybe(50), SingleUseID: h.rand.IntN(2) == 0,
	}
	switch h.rand.IntN(10) {
	case 0, 1, 2, 3:
		req := h.request(key, ref.ID)
		if req.SingleUseID {
			once = req.ID
		}
		return once, func(r *room.Record, now int64) (o outcome) {
			inside := isInside(r, req.ID, now)
			var err error
			if o.Reply, o.Wakes, err = room.Acquire(r, req, now); err != nil {
				o.Err = err.Error()
			}
			o.fresh = o.Reply.State == driver.Granted && !inside && o.Reply.Holds == 1 && req.Mode == driver.Exclusive
			return o
		}
	case 4, 5:
		return "", func(r *room.Record, now int64) (o outcome) {
			o.Reply, o.Wakes = room.Renew(r, ref, now)
			return o
		}
	case 6, 7, 8:
		if ref.SingleUseID && ref.RejectIDFor > 0 {
			once = ref.ID
		}
		return once, func(r *room.Record, now int64) (o outcome) {
			o.Reply, o.Wakes = room.Release(r, ref, now)
			return o
		}
	}
	if h.rand.IntN(4) == 0 {
		return "", func(r *room.Record, now int64) (o outcome) {
			o.Reply, o.Wakes = room.Break(r, key, ref.ID, "an \"odd\"\nreason", now)
			return o
		}
	}
	return "", func(r *room.Record, now int64) outcome { return outcome{Snap: room.Look(r, key, now)} }
}

func isInside(r *room.Record, id string, now int64) bool {
	for _, p := range room.Look(r, "", now).Holders {
		if p.ID == id {
			return true
		}
	}
	return false
}

func (h *history) request(key, id string) driver.Request {
	req := driver.Request{
		Key: key, ID: id, Owner: "owner-" + strconv.Itoa(h.rand.IntN(3)), Reenter: h.rand.IntN(4) == 0,
		Since: time.UnixMilli(h.fake.wall.Load() / 1000), Mode: driver.Mode(h.rand.IntN(2)),
		Policy: driver.Policy(h.rand.IntN(4)), TTL: h.duration(200), TicketTTL: h.maybe(100),
		ConfirmWindow: h.duration(20), HintAddress: h.notify(), LockDelay: h.maybe(30),
		SingleUseID: h.rand.IntN(2) == 0,
	}
	if h.rand.IntN(3) == 0 {
		req.Labels = map[string]string{"host": "h<1>", "ключ": "\u2028"}
	}
	if req.Mode == driver.Shared && h.rand.IntN(2) == 0 {
		req.Limit, req.Weight = 3, 1+h.rand.IntN(3)
	}
	if h.rand.IntN(50) == 0 { // up to an hour ahead of the clock
		req.MinToken = h.store.clock.read() + h.rand.Int64N(3600e6)
	}
	return req
}

// someID is mostly one that is known to the room.
func (h *history) someID(r *room.Record) string {
	known := append(append([]room.Party{}, r.Inside...), r.Queue...)
	if len(known) > 0 && h.rand.IntN(3) > 0 {
		return known[h.rand.IntN(len(known))].ID
	}
	if h.rand.IntN(4) == 0 && h.nid > 0 {
		return "id-" + strconv.Itoa(max(h.nid-h.rand.IntN(10), 1))
	}
	h.nid++
	return "id-" + strconv.Itoa(h.nid)
}

func (h *history) duration(ms int64) time.Duration {
	return time.Duration(1+h.rand.Int64N(ms)) * time.Millisecond
}

func (h *history) maybe(ms int64) time.Duration {
	if h.rand.IntN(2) == 0 {
		return 0
	}
	return h.duration(ms)
}

func (h *history) notify() string {
	return []string{"", "mail-1", "mail-2"}[h.rand.IntN(3)]
}

// forgetSwept takes over that the store removed a file, after judging that it
// was right to: key's by the call, any by a sweep.
func (h *history) forgetSwept(key string) {
	now := h.store.clock.read()
	for k, r := range h.model {
		if key != "" && k != key {
			continue
		}
		_, err := os.Stat(recordPath(h.store, k))
		if err == nil {
			if key != "" && r.Idle(now) && r.Token < now {
				h.Errorf("%q: the file of an idle room stays", k)
			}
			continue
		}
		left := room.Record{Spent: r.Spent} // they have a file of their own
		r.Spent = nil
		if r.Until() > now/1000 || r.Token >= now {
			h.Errorf("%q: the file is gone at %d, but the room is %+v", k, now, *r)
		}
		h.model[k] = &left
	}
}

// drain lets everything expire: nothing may be left.
func (h *history) drain() {
	h.fake.advance(25 * time.Hour)
	h.store.sweep()
	if left := files(h.T, h.store.tree.path("rooms")); len(left) > 0 {
		h.Errorf("left: %v", left)
	}
}
