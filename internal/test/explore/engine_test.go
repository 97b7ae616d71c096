package explore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/internal/test/pipenet"
	"github.com/leasehold-go/leasehold/internal/test/teststore"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/server"
)

// system is a store or a service that clients use through a post.
type system struct {
	name  string
	fates []fate
	nodes int // one store, or a quorum of three
	// served is set if the clients ask two replicas of a service, which use the store.
	served bool
	// lives is the longest time for which a node may keep the effect of a late message, such as
	// a place in its queue: a replica has no record of another one's messages to a minority.
	lives time.Duration
	// queues is set for one store with a queue: it serves in the order of arrival (P6), and
	// does not grant a released lease again (P7).
	queues bool
}

var systems = []system{
	{name: "engine", fates: []fate{lost, unanswered, slow, late, held}, nodes: 1, queues: true},
	{name: "service of two replicas", fates: []fate{lost, unanswered, slow, late, held}, nodes: 1, served: true, queues: true},
	{name: "service on a quorum", fates: []fate{unanswered, slow, late}, nodes: 3, served: true, lives: timing.TicketLife("an address")},
	{name: "quorum of three", fates: []fate{lost, unanswered, slow, late, held, forgets}, nodes: 3},
}

// open opens a driver for each client. stop ends the services.
func (sys system) open(t *testing.T, p *post, names []string) (clients []driver.Driver, tables []*teststore.Table, stop func()) {
	for range sys.nodes {
		tables = append(tables, teststore.NewTable(time.Now))
	}
	if !sys.served {
		return openStores(t, p, tables, names), tables, func() {}
	}
	clients, stop = replicas(t, p, openStores(t, p, tables, replicaNames), names)
	return clients, tables, stop
}

// openStores opens a driver of one table, or of a quorum of tables, for each name.
func openStores(t *testing.T, p *post, tables []*teststore.Table, names []string) (drivers []driver.Driver) {
	for _, name := range names {
		var nodes []driver.Driver
		for i, table := range tables {
			from := name
			if len(tables) > 1 {
				from = fmt.Sprintf("%s at %d", name, i+1)
			}
			nodes = append(nodes, p.reach(t, from, table, false, func(req driver.Request, _ driver.Reply) { p.granted(req.ID) }))
		}
		drivers = append(drivers, together(t, nodes))
	}
	return drivers
}

// together returns a quorum of nodes, or a single node itself.
func together(t *testing.T, nodes []driver.Driver) driver.Driver {
	t.Helper()
	if len(nodes) == 1 {
		return nodes[0]
	}
	q, err := quorumdriver.New(nodes, quorumdriver.WithTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// replicaNames are the names of the services at their store.
var replicaNames = []string{"one", "two"}

// replicas are services, and clients that ask them all.
func replicas(t *testing.T, p *post, stores []driver.Driver, names []string) (clients []driver.Driver, stop func()) {
	var ends []func()
	var transports []http.RoundTripper
	for _, store := range stores {
		s, err := server.New(store, server.WithStoreTimeout(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		l := pipenet.Listen()
		go func() { _ = s.Serve(l, nil) }()
		transport := &http.Transport{DialContext: l.Dial, DisableCompression: true}
		transports = append(transports, transport)
		ends = append(ends, func() {
			transport.CloseIdleConnections()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := s.Shutdown(ctx); err != nil {
				t.Errorf("shutdown: %v", err)
			}
			_ = l.Close()
		})
	}
	for i, name := range names {
		through := &mailedHTTP{sender: sender{post: p, from: name}, replicas: transports, n: 2 * i}
		d, err := httpdriver.Open("http://service", httpdriver.WithClient(&http.Client{Transport: through}),
			httpdriver.WithTimeout(1500*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, d)
	}
	return clients, func() {
		for _, end := range ends {
			end()
		}
	}
}

// left returns an error if a table still has holders or waiters of the lock.
func left(table *teststore.Table) error {
	d := table.Join()
	defer d.Close()
	snap, err := d.Inspect(context.Background(), "k")
	if err == nil && len(snap.Holders)+len(snap.Waiters) > 0 {
		err = fmt.Errorf("left behind: %+v", snap)
	}
	return err
}

// scene is one play of some clients.
type scene struct {
	post   *post
	queues bool // see system

	mu     sync.Mutex
	served []string
	live   []*heldLease
	last   int64
	wrongs []string
	losses bool // two faults may end a lease within its window after a hand-over
}

// heldLease is a lease that its holder has not seen end.
type heldLease struct {
	name   string
	lease  *leasehold.Lease
	shared bool
}

func (s *scene) wrong(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrongs = append(s.wrongs, fmt.Sprintf(format, args...))
}

// enters checks a grant.
func (s *scene) enters(name string, l *leasehold.Lease, shared bool) *heldLease {
	h := &heldLease{name, l, shared}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.live {
		if other.lease.Context().Err() == nil && (!other.shared || !shared) {
			s.wrongs = append(s.wrongs, fmt.Sprintf("%s holds next to %s", name, other.name))
		}
	}
	if token := l.Token(); !shared {
		if token <= s.last {
			s.wrongs = append(s.wrongs, fmt.Sprintf("%s has the token %d after %d", name, token, s.last))
		}
		s.last = token
	}
	s.live, s.served = append(s.live, h), append(s.served, name)
	return h
}

// inTurn checks that the later client was not served first, if the messages of the first
// client have arrived, answered or not (P6).
func (s *scene) inTurn(first, later string) {
	s.mu.Lock()
	at := slices.Index(s.served, later)
	over := at >= 0 && at < slices.Index(s.served, first)
	s.mu.Unlock()
	if over && s.queues && s.post.heard(append(slices.Clone(replicaNames), first)...) {
		s.wrong("%s is served before %s", later, first)
	}
}

// leaves checks the end of a lease that should not have been lost.
func (s *scene) leaves(h *heldLease) {
	if h.lease.Context().Err() != nil && !s.losses {
		s.wrong("%s has lost its lease: %v", h.name, context.Cause(h.lease.Context()))
	}
	s.mu.Lock()
	s.live = slices.DeleteFunc(s.live, func(other *heldLease) bool { return other == h })
	s.mu.Unlock()
	err := h.lease.Release()
	if err == nil && s.queues {
		s.post.isOver(h.lease.ID())
	}
	if err != nil && !errors.Is(err, leasehold.ErrUnknown) && (!s.losses || !errors.Is(err, leasehold.ErrLost)) {
		s.wrong("%s releases: %v", h.name, err)
	}
}

// holds locks, works for that long and releases. No fate of a message may make it fail.
func (s *scene) holds(name string, lock func(context.Context) (*leasehold.Lease, error), shared bool, work time.Duration) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	l, err := lock(ctx)
	if err != nil {
		s.wrong("%s asks for the lock: %v", name, err)
		return
	}
	if took := time.Since(begin); took > time.Minute {
		s.wrong("%s waited for %v", name, took)
	}
	h := s.enters(name, l, shared)
	time.Sleep(work)
	s.leaves(h)
}

// program is a sequence of acts of some clients.
type program struct {
	name    string
	clients []string
	play    func(s *scene, clients []*leasehold.Client)
}

var two = []string{"A", "B"}

var programs = []program{
	{"a mutex in turn", two, func(s *scene, clients []*leasehold.Client) {
		a, b := clients[0], clients[1]
		var wg sync.WaitGroup
		wg.Go(func() {
			s.holds("A", a.Mutex("k").Lock, false, 1500*time.Millisecond)
			s.holds("A again", a.Mutex("k").Lock, false, 10*time.Millisecond)
		})
		wg.Go(func() { s.holds("B", b.Mutex("k").Lock, false, 1500*time.Millisecond) })
		wg.Wait()
	}},
	{"a writer that becomes a reader", two, func(s *scene, clients []*leasehold.Client) {
		a, b := clients[0], clients[1]
		var wg sync.WaitGroup
		wg.Go(func() {
			l, err := a.RWMutex("k").Lock(context.Background())
			if err != nil {
				s.wrong("A asks to write: %v", err)
				return
			}
			h := s.enters("A", l, false)
			s.mu.Lock()
			h.shared = true // from when it is asked for
			s.mu.Unlock()
			if err := l.Downgrade(context.Background()); err != nil && !errors.Is(err, leasehold.ErrUnknown) && !s.losses {
				s.wrong("A becomes a reader: %v", err)
			}
			time.Sleep(500 * time.Millisecond)
			s.leaves(h)
		})
		wg.Go(func() {
			s.holds("B", b.RWMutex("k").RLock, true, time.Second)
			s.holds("B writing", b.RWMutex("k").Lock, false, 10*time.Millisecond)
		})
		wg.Wait()
	}},
	{"a waiter that gives up", two, func(s *scene, clients []*leasehold.Client) {
		a, b := clients[0], clients[1]
		var wg sync.WaitGroup
		wg.Go(func() { s.holds("A", a.Mutex("k").Lock, false, 1500*time.Millisecond) })
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
			defer cancel()
			if l, err := b.Mutex("k").Lock(ctx); err == nil {
				s.leaves(s.enters("B", l, false))
			}
			s.holds("B again", b.Mutex("k").Lock, false, 10*time.Millisecond)
		})
		wg.Wait()
	}},
	{"passed on in the process", two, func(s *scene, clients []*leasehold.Client) {
		a, b := clients[0], clients[1]
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				s.holds(fmt.Sprint("A", i), a.Mutex("k", leasehold.WithLocalHandover(1)).Lock, false, 1500*time.Millisecond)
			})
		}
		wg.Go(func() {
			time.Sleep(500 * time.Millisecond)
			s.holds("B", b.Mutex("k").Lock, false, time.Second)
		})
		wg.Wait()
	}},
	{"three in turn", []string{"A", "B", "C"}, func(s *scene, clients []*leasehold.Client) {
		var wg sync.WaitGroup
		for i, name := range []string{"A", "B", "C"} {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 300 * time.Millisecond)
				s.holds(name, clients[i].Mutex("k").Lock, false, time.Second)
			})
		}
		wg.Wait()
		s.inTurn("A", "B")
		s.inTurn("B", "C")
	}},
}

// play runs a program, and returns the violations, the number of messages and their fates.
func play(t *testing.T, sys system, pr program, plan map[int]fate) (wrongs []string, messages int, log []string) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(plan)
		drivers, tables, stop := sys.open(t, p, pr.clients)
		var clients []*leasehold.Client
		for _, d := range drivers {
			c, err := leasehold.New(d, leasehold.WithTTL(ttl))
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, c)
		}
		s := &scene{post: p, queues: sys.queues, losses: len(plan) > 1}
		pr.play(s, clients)
		for _, c := range clients {
			if err := c.Close(); err != nil {
				s.wrong("close: %v", err)
			}
		}
		time.Sleep(lateness + sys.lives + 100*time.Millisecond) // late messages have arrived
		for _, table := range tables {
			if err := left(table); err != nil {
				s.wrong("%v", err)
			}
		}
		stop()
		p.stop()
		for _, id := range p.returned {
			s.wrong("%s was granted after its release", id)
		}
		wrongs, messages, log = s.wrongs, p.count, p.log
	})
	return wrongs, messages, log
}

// TestExplore_OrdersOfMessages uses a store, a service and a quorum by clients of the library,
// and tries every fate of each message.
func TestExplore_OrdersOfMessages(t *testing.T) {
	for _, sys := range systems {
		for _, pr := range programs {
			t.Run(sys.name+"/"+pr.name, func(t *testing.T) { everyFate(t, sys, pr) })
		}
	}
}

// everyFate tries all plans with one fate, or with two if the exploration is deep.
func everyFate(t *testing.T, sys system, pr program) {
	begin := time.Now()
	runs := 0
	try := func(p map[int]fate) (messages int) {
		wrongs, messages, log := play(t, sys, pr, p)
		if runs++; len(wrongs) > 0 {
			t.Errorf("%s\n%s\nplay it again with -run '%s' -explore.plan=%s", strings.Join(wrongs, "\n"), strings.Join(log, "\n"), t.Name(), planText(p))
		}
		return messages
	}
	if *plan != "" {
		try(planOf(t, *plan))
		return
	}
	tried := sys.fates
	if fewer() > 0 && sys.name != "engine" {
		tried = []fate{unanswered, late}
	}
	n := try(nil)
	for at := range n {
		for _, f := range tried {
			m := try(map[int]fate{at: f})
			for second := at + 1; *deep && second < m; second++ {
				for _, g := range tried {
					try(map[int]fate{at: f, second: g})
				}
			}
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d messages, %d orders in %v", n, runs, time.Since(begin).Round(time.Millisecond))
}
