// Package room is the admission rule of every lock, as pure functions over a record: a
// request, the record and the time go in, the reply and the hints to send come out. It
// has no I/O, no clock and no goroutine.
//
// The memory store and the directory store are this package under a mutex and under a
// file lock. The Redis scripts (internal/redisroom) are the same rule over other data
// structures, with the same function names in the same order, and are tested against this
// package.
//
// The rule in one sentence: a party enters if it fits beside the holders and need not yield
// to a waiter.
package room

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Record is all that a store keeps of one room. The zero value is an empty room that has
// never minted a token. Times are milliseconds of the store's clock.
type Record struct {
	// Token is the last fencing token minted, 0 before the first.
	Token int64
	// Seq numbers the arrivals in the queue.
	Seq int64
	// Limit is the limit of the present shared parties, holders or waiters.
	Limit int
	// Closed is the time until which the room is closed.
	Closed int64
	// Head and When are the waiter that was last told to ask, and the time for that, so
	// that no waiter is notified twice.
	Head string
	When int64
	// Inside holds the holders, in the order of entry.
	Inside []Party
	// Queue holds the waiters, by rank.
	Queue []Party
	// Marks holds short memories: "+id" an id that is rejected,
	// "!address" a process that let a hand-over lapse, with the arrivals before
	// that hand-over as its reason, "@address" when a waiter of a process has asked
	// again (suspicion before the end), "~id" a broken lease, "?" the probe of a driver
	// that is about to look at the store's mark.
	Marks map[string]Mark
	// Spent holds ids that are rejected in a request with SingleUseID.
	Spent Spent
	// Store is not part of the encoded record.
	Store Store
}

// Store passes facts from the store to the steps on a record, and back.
type Store struct {
	// Next is greater than every token that the store has removed with its record. It is 0 in
	// a store without a counter: the clock takes its place.
	Next int64
	// Minted is how many tokens the steps have minted, and Last the last of them.
	Minted int
	Last   int64
	// Raised reports whether a step has raised the token of a lease, for a quorum.
	Raised bool
	// Marked reports whether the mark of the store shows that it has lost no data.
	Marked bool
}

// Party is a holder of the room, or a waiter in its queue.
type Party struct {
	ID        string
	Owner     string
	Reenter   bool
	Labels    map[string]string
	Since     int64
	Mode      driver.Mode
	Policy    driver.Policy
	Weight    int
	Places    driver.Places // of a holder
	Window    int64
	Delay     int64
	MinToken  int64
	Notify    string
	Rank      int64
	Expiry    int64
	Token     int64
	Called    int64 // of a ticket: when it was last called to come
	Before    int64 // Seq when it was called or handed the room; otherwise unused
	Confirmed bool
	Visit     string
}

// Mark is a memory that ends at Until.
type Mark struct {
	Until  int64
	Reason string
}

// before returns up to which arrival a process is suspect: all arrivals by default.
func (m Mark) before() int64 {
	if n, err := strconv.ParseInt(m.Reason, 10, 64); err == nil {
		return n
	}
	return behind
}

// Wake is a hint and the address to which it is sent.
type Wake struct {
	Address string // or Everybody
	Hint    driver.Hint
}

// Everybody is the address of a hint to all subscriptions of the store. No subscription
// has it.
const Everybody = "*"

// Bounds that the scripts share.
const (
	// behind is added to the rank of waiters that their policy lets other waiters pass.
	behind = 1 << 46
	// suspicion is how long a process that missed a hand-over is not handed a lock for
	// its earlier requests, unless it makes a request: longer than its tickets live.
	suspicion = 60_000
	// batch bounds the hand-overs of one call.
	batch = 64
	// ahead is how far, in µs, a minimum token may lie ahead of the clock.
	ahead = int64(24 * time.Hour / time.Microsecond)
	// Lead is how far, in µs, the raised token of one lock may push the counter of the store
	// ahead of the clock. Other tokens ahead of the clock stay with their locks: if the store
	// lost its data, the tokens of all locks would fall.
	Lead = int64(time.Second / time.Microsecond)
	// MarkToken identifies the record of the store's mark.
	MarkToken = math.MaxInt64
)

// IsMark reports whether the record is the mark of a store that has no quarantine.
func (r *Record) IsMark(now int64) bool { return r.Token == MarkToken && r.Closed <= now/1000 }

// Idle reports whether only the token has to be remembered.
func (r *Record) Idle(now int64) bool {
	ms := now / 1000
	return len(r.Inside) == 0 && len(r.Queue) == 0 && len(r.Marks) == 0 && r.Closed <= ms && r.Spent.until() <= ms
}

// Until returns the time after which the record, except for its token, is meaningless.
func (r *Record) Until() int64 {
	until := max(r.Closed, r.Spent.until())
	for _, p := range r.Inside {
		until = max(until, p.Expiry+p.Delay)
	}
	for _, p := range r.Queue {
		until = max(until, p.Expiry)
	}
	for _, m := range r.Marks {
		until = max(until, m.Until)
	}
	return until
}

// newParty returns the party of a request, without rank and token.
func newParty(req driver.Request) Party {
	if req.Mode == driver.Exclusive {
		req.Weight = 1 // it takes the whole room
	}
	return Party{
		ID: req.ID, Owner: req.Owner, Reenter: req.Reenter, Labels: maps.Clone(req.Labels), // the caller may change its own
		Since: req.Since.UnixMilli(), Mode: req.Mode, Policy: req.Policy,
		Weight: max(req.Weight, 1),
		Window: req.ConfirmWindow.Milliseconds(), Delay: req.LockDelay.Milliseconds(),
		MinToken: req.MinToken, Notify: req.HintAddress, Visit: req.Visit,
	}
}

func (r *Record) inside(id string) *Party { return find(r.Inside, id) }
func (r *Record) ticket(id string) *Party { return find(r.Queue, id) }

func find(parties []Party, id string) *Party {
	for i := range parties {
		if parties[i].ID == id {
			return &parties[i]
		}
	}
	return nil
}

func remove(parties []Party, id string) []Party {
	return slices.DeleteFunc(parties, func(p Party) bool { return p.ID == id })
}

func (r *Record) mark(name string, until int64, reason string) {
	if r.Marks == nil {
		r.Marks = make(map[string]Mark)
	}
	r.Marks[name] = Mark{Until: until, Reason: reason}
}

// Arrival returns the place of a ticket in the order of arrival.
func (p *Party) Arrival() int64 { return p.Rank % behind }

// Heard returns when a waiter of a process last asked again, or 0 if that was long ago.
func (r *Record) Heard(address string) int64 {
	if m, ok := r.Marks["@"+address]; ok {
		return m.Until - suspicion
	}
	return 0
}

func (r *Record) marked(name string) bool {
	_, ok := r.Marks[name]
	return ok
}

// sharers reports whether a party uses the room shared or waits to.
func (r *Record) sharers() bool {
	shared := func(p Party) bool { return p.Mode == driver.Shared }
	return slices.ContainsFunc(r.Inside, shared) || slices.ContainsFunc(r.Queue, shared)
}
