package explore

import (
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Scenario defines the possible actions of the parties of an exploration.
type Scenario struct {
	Name string
	// Parties are the requests that each party may make, one after the other. Parties
	// with the same list are interchangeable.
	Parties [][]driver.Request
	// Attempts is how often each party begins, each time with a new id.
	Attempts int
	// Faults bounds the lost answers plus the late or repeated requests.
	Faults int

	Downgrades bool // writers may become readers
	Breaks     bool // an operator ends leases and waits
	Keeps      bool // releases keep the room closed
	Visits     bool // each party asks by two visits, and a visit is undone if its client did not get the answer
	Doubles    bool // requests may be doubled, so that every id is used once
	Raises     bool // renewals raise tokens
	Resize     int  // an operator sets this limit; 0 means never
	Narrow     bool // the network fails only requests for the lock, and releases

	// Depth is how many steps the normal run explores, Deep the long run, and Short
	// the runs that are replayed on stores.
	Depth, Deep, Short int
}

// Durations of all scenarios. They differ, so that times that end together have begun at
// different times.
const (
	leaseTTL  = 100 * time.Millisecond
	ticketTTL = 60 * time.Millisecond
	window    = 20 * time.Millisecond
	delay     = 30 * time.Millisecond
	keep      = 30 * time.Millisecond
	forbid    = time.Minute
	drift     = 0.01
)

// listens is the address of requests that listen for hints; the address of the party replaces it.
const listens = "*"

func exclusive(options ...func(*driver.Request)) driver.Request {
	req := driver.Request{TTL: leaseTTL, TicketTTL: ticketTTL, ConfirmWindow: window, HintAddress: listens, Since: time.UnixMilli(1_700_000_000_000)}
	for _, o := range options {
		o(&req)
	}
	return req
}

func shared(options ...func(*driver.Request)) driver.Request {
	req := exclusive(options...)
	req.Mode = driver.Shared
	return req
}

func try(req *driver.Request)  { req.TicketTTL = 0 }
func deaf(req *driver.Request) { req.HintAddress = "" }
func slow(req *driver.Request) { req.LockDelay = delay }

func policy(p driver.Policy) func(*driver.Request) {
	return func(req *driver.Request) { req.Policy = p }
}

func places(weight, limit int) func(*driver.Request) {
	return func(req *driver.Request) { req.Weight, req.Limit = weight, limit }
}

func owner(name string) func(*driver.Request) {
	return func(req *driver.Request) { req.Owner, req.Reenter = name, true }
}

func ahead(us int64) func(*driver.Request) {
	return func(req *driver.Request) { req.MinToken = epoch + us }
}

// repeated returns the same list n times, for n parties.
func repeated(n int, k ...driver.Request) (all [][]driver.Request) {
	for range n {
		all = append(all, k)
	}
	return all
}

// Scenarios are all scenarios that are explored.
var Scenarios = []Scenario{
	{Name: "mutex of two", Parties: repeated(2, exclusive()), Attempts: 2, Faults: 2, Depth: 6, Deep: 9, Short: 4},
	{Name: "mutex of three", Parties: repeated(3, exclusive()), Attempts: 1, Faults: 1, Depth: 7, Deep: 9, Short: 4},
	{Name: "tries", Parties: [][]driver.Request{{exclusive()}, {exclusive(try)}, {exclusive(try)}}, Attempts: 2, Faults: 1, Depth: 6, Deep: 8, Short: 4},
	{Name: "waiters without an address", Parties: [][]driver.Request{{exclusive()}, {exclusive(deaf)}, {exclusive(deaf)}}, Attempts: 1, Faults: 1, Depth: 6, Deep: 8, Short: 4},
	{Name: "broken and delayed", Parties: repeated(2, exclusive(slow)), Attempts: 2, Faults: 1, Breaks: true, Depth: 6, Deep: 8, Short: 4},
	{Name: "kept closed", Parties: repeated(2, exclusive()), Attempts: 2, Faults: 1, Keeps: true, Depth: 7, Deep: 9, Short: 4},
	{Name: "readers and a writer", Parties: [][]driver.Request{{exclusive()}, {shared()}, {shared()}}, Attempts: 1, Faults: 1, Depth: 6, Deep: 8, Short: 4},
	{Name: "writers first", Parties: [][]driver.Request{{exclusive(policy(driver.WritersFirst))}, {shared(policy(driver.WritersFirst))}, {shared(policy(driver.WritersFirst))}}, Attempts: 1, Faults: 1, Depth: 6, Deep: 8, Short: 4},
	{Name: "readers first", Parties: [][]driver.Request{{exclusive(policy(driver.ReadersFirst))}, {exclusive(policy(driver.ReadersFirst))}, {shared(policy(driver.ReadersFirst))}}, Attempts: 1, Faults: 1, Depth: 6, Deep: 8, Short: 4},
	{Name: "barging", Parties: [][]driver.Request{{exclusive(policy(driver.Barging))}, {exclusive(policy(driver.Barging))}, {exclusive()}}, Attempts: 1, Faults: 1, Depth: 6, Deep: 8, Short: 4},
	{Name: "downgrades", Parties: [][]driver.Request{{exclusive()}, {exclusive(), shared()}}, Attempts: 2, Faults: 2, Downgrades: true, Depth: 5, Deep: 7, Short: 3},
	{Name: "downgrades of three", Parties: [][]driver.Request{{exclusive()}, {shared()}, {exclusive()}}, Attempts: 1, Faults: 1, Downgrades: true, Depth: 6, Deep: 8, Short: 4},
	{Name: "re-entry", Parties: [][]driver.Request{{exclusive(owner("o"))}, {exclusive(owner("o"))}, {exclusive(), shared(owner("o"))}}, Attempts: 1, Faults: 1, Depth: 6, Deep: 8, Short: 4},
	{Name: "re-entry and downgrades", Parties: [][]driver.Request{{exclusive(owner("o"))}, {exclusive(owner("o"))}}, Attempts: 2, Faults: 1, Downgrades: true, Depth: 7, Deep: 9, Short: 4},
	{Name: "places", Parties: [][]driver.Request{{shared(places(1, 2))}, {shared(places(2, 2))}, {shared(places(1, 2)), exclusive()}}, Attempts: 1, Faults: 1, Depth: 5, Deep: 7, Short: 3},
	{Name: "resized places", Parties: repeated(2, shared(places(2, 3))), Attempts: 2, Faults: 0, Resize: 1, Depth: 7, Deep: 10, Short: 4},
	{Name: "visits", Parties: repeated(2, exclusive()), Attempts: 1, Faults: 3, Visits: true, Narrow: true, Depth: 5, Deep: 7, Short: 4},
	{Name: "doubled requests", Parties: repeated(2, exclusive()), Attempts: 1, Faults: 2, Doubles: true, Depth: 6, Deep: 8, Short: 4},
	{Name: "raised tokens", Parties: [][]driver.Request{{exclusive(), exclusive(ahead(5_000_000))}, {exclusive()}}, Attempts: 2, Faults: 1, Raises: true, Depth: 5, Deep: 7, Short: 3},
}
