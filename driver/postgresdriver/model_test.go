//go:build linux

package postgresdriver

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// TestHistory_AgreesWithARecordInMemory plays random calls of two processes on a table, and
// the same on records in memory. The rule is the same function, so what is tested is what
// lies between: guesses, exchanges, transactions, notes and deletions. Whatever lasts lasts
// an odd multiple of five minutes, and the clock goes on by ten, so that it does not matter
// how long a call takes. SEED repeats a history.
func TestHistory_AgreesWithARecordInMemory(t *testing.T) {
	steps := 3000
	if testing.Short() {
		steps = 600
	}
	seed := rand.Uint64()
	if text := os.Getenv("SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("SEED=%d", seed)
	server, clock := postgrestest.StartWithClock(t)
	h := &model{
		T: t, rand: rand.New(rand.NewPCG(seed, 0)), clock: clock, records: make(map[string]*room.Record), tokens: make(map[string]int64),
		stores: []*Driver{openURL(t, server.URL()+"&create=true"), openURL(t, server.URL()+"&create=true")},
	}
	for i := range steps {
		h.step()
		if t.Failed() {
			t.Fatalf("step %d of SEED=%d", i, seed)
		}
	}
	t.Logf("%d answers of each state: %v", steps, h.seen)
	for _, s := range []driver.State{driver.Granted, driver.Queued, driver.Busy, driver.Gone, driver.Released, driver.Left} {
		if h.seen[s] == 0 {
			t.Errorf("nothing was answered by %v", s)
		}
	}
}

type model struct {
	*testing.T
	rand    *rand.Rand
	clock   *redistest.Clock
	skew    time.Duration
	stores  []*Driver
	records map[string]*room.Record
	tokens  map[string]int64 // the greatest of each key
	nid     int
	seen    map[driver.State]int
}

// answer is what can be compared.
type answer struct {
	Reply            driver.Reply
	Holders, Waiters []string
	Closed           time.Duration
	Limit            int
	Refused          bool
}

// coarse is a duration as precise as it is in both.
func coarse(d time.Duration) time.Duration { return (d + time.Minute).Truncate(10 * time.Minute) }

func (h *model) plain(reply driver.Reply, snap driver.Snapshot, err error) string {
	reply.Token, reply.Clock, reply.RetryAfter = 0, 0, coarse(reply.RetryAfter)
	a := answer{Reply: reply, Closed: coarse(snap.Closed), Limit: snap.Limit, Refused: err != nil}
	for _, p := range append(snap.Holders, reply.Holders...) {
		a.Holders = append(a.Holders, fmt.Sprint(p.ID, p.Owner, p.Mode, p.Weight, coarse(p.Remaining), p.Labels, p.Confirmed))
	}
	a.Reply.Holders = nil
	slices.Sort(a.Holders)
	for _, p := range snap.Waiters {
		a.Waiters = append(a.Waiters, fmt.Sprint(p.ID, p.Owner, p.Mode, p.Weight, p.Position, coarse(p.Remaining), p.Labels))
	}
	text, failed := json.Marshal(a)
	if failed != nil {
		h.Fatal(failed)
	}
	return string(text)
}

// alike is whom a refusal is to name: who stays longest, or whoever is named of those inside
// that stay equally long. How long the calls took that let them in decides between these.
func alike(want, got, inside []driver.Holder) []driver.Holder {
	if len(want) != 1 || len(got) != 1 {
		return want
	}
	i := slices.IndexFunc(inside, func(p driver.Holder) bool { return p.ID == got[0].ID })
	if i < 0 || coarse(inside[i].Remaining) != coarse(want[0].Remaining) {
		return want
	}
	return inside[i : i+1]
}

func (h *model) compare(what any, got, want string) {
	h.Helper()
	if got != want {
		h.Errorf("%+v: the table answered\n%s\nthe record in memory\n%s", what, got, want)
	}
}

func (h *model) now() int64 { return time.Now().Add(h.skew).UnixMicro() }

func (h *model) record(key string) *room.Record {
	if h.records[key] == nil {
		h.records[key] = new(room.Record)
	}
	return h.records[key]
}

func (h *model) step() {
	key := []string{"a", "b", "orders/42", "ключ"}[h.rand.IntN(4)]
	d, r := h.stores[h.rand.IntN(2)], h.record(key)
	switch n := h.rand.IntN(100); {
	case n < 8:
		step := time.Duration(1+h.rand.IntN(3)) * 10 * time.Minute
		h.skew += step
		h.clock.Step(step)
	case n < 45:
		req := h.request(key, h.someID(r))
		inside := room.Look(r, key, h.now())
		got, err := d.Acquire(h.Context(), req)
		want, _, refused := room.Acquire(r, req, h.now())
		want.Holders = alike(want.Holders, got.Holders, inside.Holders)
		h.compare(req, h.plain(got, driver.Snapshot{}, err), h.plain(want, driver.Snapshot{}, refused))
		h.count(got)
		fresh := !slices.ContainsFunc(inside.Holders, func(p driver.Holder) bool { return p.ID == req.ID })
		if got.State == driver.Granted && fresh && got.Holds == 1 && got.Token <= h.tokens[key] {
			h.Errorf("%+v: token %d after %d", req, got.Token, h.tokens[key])
		}
		h.tokens[key] = max(h.tokens[key], got.Token)
	case n < 70:
		ref := h.ref(key, h.someID(r))
		got, err := d.Release(h.Context(), ref)
		want, _ := room.Release(r, ref, h.now())
		h.compare(ref, h.plain(got, driver.Snapshot{}, err), h.plain(want, driver.Snapshot{}, nil))
		h.count(got)
	case n < 75:
		id := h.someID(r)
		got, err := d.Break(h.Context(), key, id, "an \"odd\" reason")
		want, _ := room.Break(r, key, id, "an \"odd\" reason", h.now())
		h.compare(id, h.plain(got, driver.Snapshot{}, err), h.plain(want, driver.Snapshot{}, nil))
	case n < 85:
		got, err := d.Inspect(h.Context(), key)
		h.compare(key, h.plain(driver.Reply{}, got, err), h.plain(driver.Reply{}, room.Look(r, key, h.now()), nil))
	default:
		h.renew(d)
	}
}

// renew renews one lease or several, of one lock or of several.
func (h *model) renew(d *Driver) {
	var refs []driver.Ref
	for range 1 + h.rand.IntN(6) {
		key := []string{"a", "b", "orders/42", "ключ"}[h.rand.IntN(4)]
		refs = append(refs, h.ref(key, h.someID(h.record(key))))
	}
	got := make([]string, len(refs))
	d.Renew(h.Context(), refs, func(i int, reply driver.Reply, err error) {
		got[i] = h.plain(reply, driver.Snapshot{}, err)
		h.count(reply)
	})
	for i, ref := range refs {
		want, _ := room.Renew(h.record(ref.Key), ref, h.now())
		h.compare(ref, got[i], h.plain(want, driver.Snapshot{}, nil))
	}
}

func (h *model) count(reply driver.Reply) {
	if h.seen == nil {
		h.seen = make(map[driver.State]int)
	}
	h.seen[reply.State]++
}

func (h *model) request(key, id string) driver.Request {
	req := driver.Request{
		Key: key, ID: id, Owner: "owner-" + strconv.Itoa(h.rand.IntN(3)), Reenter: h.rand.IntN(4) == 0,
		Since: time.UnixMilli(h.now() / 1000), Mode: driver.Mode(h.rand.IntN(2)), //nolint:gosec // 0 or 1
		Policy: driver.Policy(h.rand.IntN(4)), TTL: h.lasting(), TicketTTL: h.maybe(), //nolint:gosec // 0 to 3
		ConfirmWindow: h.lasting(), HintAddress: h.address(), SingleUseID: h.rand.IntN(3) == 0,
	}
	if h.rand.IntN(4) == 0 {
		req.LockDelay = h.lasting()
	}
	if h.rand.IntN(3) == 0 {
		req.Labels = map[string]string{"host": "h<1>", "ключ": "\u2028"}
	}
	if req.Mode == driver.Shared && h.rand.IntN(2) == 0 {
		req.Limit, req.Weight = 3, 1+h.rand.IntN(3)
	}
	return req
}

func (h *model) ref(key, id string) driver.Ref {
	ref := driver.Ref{Key: key, ID: id, TTL: h.lasting(), TicketTTL: h.lasting(), HintAddress: h.address(), SingleUseID: h.rand.IntN(3) == 0}
	switch h.rand.IntN(6) {
	case 0:
		ref.KeepClosed = h.lasting()
	case 1, 2:
		ref.RejectIDFor = h.lasting()
	}
	return ref
}

// someID is mostly one that is known to the lock.
func (h *model) someID(r *room.Record) string {
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

func (h *model) lasting() time.Duration {
	return time.Duration(2*h.rand.IntN(5)+1) * 5 * time.Minute
}

func (h *model) maybe() time.Duration {
	if h.rand.IntN(2) == 0 {
		return 0
	}
	return h.lasting()
}

func (h *model) address() string {
	return []string{"", "mail1.1", "mail2.1"}[h.rand.IntN(3)]
}
