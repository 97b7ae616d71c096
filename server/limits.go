package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// quota bounds how many requests wait, per client and per lock.
type quota struct {
	perClient, perKey int

	mu      sync.Mutex
	waiting int
	clients map[string]int
	keys    map[string]int
}

func newQuota(perClient, perKey int) *quota {
	return &quota{
		perClient: perClient, perKey: perKey,
		clients: make(map[string]int), keys: make(map[string]int),
	}
}

// admit counts a request that waits, once for the lock in its path or once for each of names.
// The caller calls leave at the end of the wait.
func (s *Server) admit(x *Exchange, names ...string) (leave func(), err error) {
	client := x.Client()
	if len(names) == 0 {
		names = []string{x.Name}
	}
	leave = func() {
		for _, name := range names {
			s.quota.leave(client, name)
		}
	}
	for i, name := range names {
		if err := s.quota.enter(client, name); err != nil {
			names = names[:i]
			leave()
			return nil, err
		}
	}
	return leave, nil
}

// enter counts one request; key is empty for a wait that is for no particular lock.
func (q *quota) enter(client, key string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.clients[client] >= q.perClient:
		return newProblem(TooMany, "this client already has %d requests that wait", q.perClient).After(retryLater)
	case key != "" && q.keys[key] >= q.perKey:
		return newProblem(TooMany, "%d requests already wait for this lock", q.perKey).After(retryLater)
	}
	q.waiting++
	q.clients[client]++
	if key != "" {
		q.keys[key]++
	}
	return nil
}

func (q *quota) leave(client, key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	less(q.clients, client)
	if key != "" {
		less(q.keys, key)
	}
}

// less decrements a count, and deletes it at zero.
func less(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}

// now returns the number of requests that wait.
func (q *quota) now() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// places holds the places in queues that clients keep without a request that waits. Each counts
// as a request that waits, until its time is up or an answer of the store shows that it ended.
type places struct {
	quota *quota

	mu  sync.Mutex
	all map[leaseKey]*place
}

// place is one place in a queue.
type place struct {
	client string
	timer  *time.Timer // counts it down
}

// enter counts a place that the client is about to ask for, unless it has it
// already.
func (p *places) enter(client string, of leaseKey, life time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.all[of]; at != nil {
		at.timer.Reset(life)
		return nil
	}
	if err := p.quota.enter(client, of.key); err != nil {
		return err
	}
	at := &place{client: client}
	at.timer = time.AfterFunc(life, func() { p.leave(of, at) })
	p.all[of] = at
	return nil
}

// follow prolongs a place that is counted, or counts it down, by the answer to a request.
func (p *places) follow(ref *driver.Ref, state driver.State) {
	of := leaseKey{ref.Key, ref.ID}
	if state != driver.Queued {
		p.end(of)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.all[of]; at != nil {
		at.timer.Reset(ref.TicketTTL)
	}
}

// end counts the place of a lease down, if there is one.
func (p *places) end(of leaseKey) {
	p.mu.Lock()
	at := p.all[of]
	p.mu.Unlock()
	if at != nil {
		at.timer.Stop()
		p.leave(of, at)
	}
}

// leave counts a place down, once.
func (p *places) leave(of leaseKey, at *place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all[of] == at {
		delete(p.all, of)
		p.quota.leave(at.client, of.key)
	}
}

// scarcity records failures to accept connections, most often because the process has no
// descriptor left.
type scarcity struct {
	mu   sync.Mutex
	last time.Time
	told time.Time
}

const (
	// scarceFor is how long the service is not ready after it could not accept a
	// connection.
	scarceFor = 5 * time.Second
	// tellEvery is the minimum time between two records of such failures in the log.
	tellEvery = 10 * time.Second
)

// failed records the error of an Accept.
func (s *scarcity) failed(log *slog.Logger, err error) {
	if errors.Is(err, net.ErrClosed) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.last = now
	if now.Sub(s.told) < tellEvery {
		return
	}
	s.told = now
	log.Warn("leasehold: connections are not accepted", "error", err)
}

func (s *scarcity) isNow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.last.IsZero() && time.Since(s.last) < scarceFor
}

// limit refuses a request on a connection that is one too many, and ends the connection. The
// liveness probe is answered on every connection.
func (s *Server) limit(w *answer, r *http.Request) error {
	if c := connOf(r.Context()); c == nil || !c.over || w.x.Route != nil && w.x.Route.Operation == "livez" {
		return nil
	}
	w.Header().Set("Connection", "close")
	return newProblem(Overloaded, "the service has the maximum of %d connections", s.cfg.maxConnections).After(retryLater)
}

// timeouts bound the calls of the store. A timer for every request would be a good part of the
// cost of a short one, so requests that follow each other closely share a timer: each gets the
// whole time, or up to a sixteenth less. A store that is punctual needs no timer, since it reads
// the deadline of the context.
type timeouts struct {
	each     time.Duration
	punctual bool // the store observes deadlines by itself

	mu     sync.Mutex
	last   context.Context
	cancel context.CancelFunc // of last; a context that is replaced ends at its deadline
	until  time.Time          // requests before it share last
}

// begin returns a context with the values of ctx, whose time counts from now. It does not end if
// the client goes, since a call of the store is not cancelled for that.
func (t *timeouts) begin(ctx context.Context, now time.Time) context.Context {
	if t.punctual {
		return timing.Untimed(context.WithoutCancel(ctx), now.Add(t.each))
	}
	return bound{t.shared(now), ctx}
}

func (t *timeouts) shared(now time.Time) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.After(t.until) {
		t.last, t.cancel = context.WithDeadline(context.Background(), now.Add(t.each))
		t.until = now.Add(t.each / 16)
	}
	return t.last
}

// close stops the timer. A later call gets a new timer, so that it receives the error of the
// closed store.
func (t *timeouts) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cancel != nil {
		t.cancel()
	}
	t.until = time.Time{}
}

// bound ends as the context that it embeds does, and has the values of both.
type bound struct {
	context.Context
	values context.Context
}

// Value implements [context.Context].
func (b bound) Value(key any) any {
	if v := b.Context.Value(key); v != nil {
		return v
	}
	return b.values.Value(key)
}
