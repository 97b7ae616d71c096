package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/server/internal/api"
)

// quota bounds how many requests wait, so that one client cannot take all the
// room there is, nor fill one queue.
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

// admit lets a request wait, for the lock in its path or for those that are named,
// each of which counts as one that waits. What it returns is called when the
// wait has ended.
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

// enter counts one more; key is empty for a wait that is for no lock in particular.
func (q *quota) enter(client, key string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.clients[client] >= q.perClient:
		return api.NewProblem(TooMany, "%d requests of yours wait already", q.perClient).After(api.RetryLater)
	case key != "" && q.keys[key] >= q.perKey:
		return api.NewProblem(TooMany, "%d requests for this lock wait already", q.perKey).After(api.RetryLater)
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

// less counts one down, and forgets who is at zero.
func less(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}

// now is how many requests wait.
func (q *quota) now() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// places are those in queues that clients keep without a request that waits: each
// counts as one that does, until it ends by itself, or is heard to have ended.
type places struct {
	quota *quota

	mu  sync.Mutex
	all map[leaseKey]*place
}

// place is one of them.
type place struct {
	client string
	timer  *time.Timer // ends it
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

// keep prolongs a place that is counted.
func (p *places) keep(of leaseKey, life time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.all[of]; at != nil {
		at.timer.Reset(life)
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

// scarcity remembers that connections could not be accepted, most often because
// the process has no descriptor left.
type scarcity struct {
	mu   sync.Mutex
	last time.Time
	told time.Time
}

const (
	// scarceFor is how long the service is not ready after it could not accept a
	// connection.
	scarceFor = 5 * time.Second
	// tellEvery is how often that is logged.
	tellEvery = 10 * time.Second
)

// failed takes note of the error of an Accept.
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

// crowded says that there are too many connections, if there are: nil otherwise.
func (s *Server) crowded() error {
	if s.conns.Load() < int64(s.cfg.maxConnections) && !s.scarcity.isNow() {
		return nil
	}
	return api.NewProblem(Overloaded, "%d connections are open, or no more can be accepted", s.conns.Load()).After(api.RetryLater)
}

// isOver reports whether a request comes on a connection that is one too many.
// Whether the process is alive is told on all.
func (s *Server) isOver(w *answer, r *http.Request) bool {
	c := connOf(r.Context())
	return c != nil && c.over && (w.x.Route == nil || w.x.Route.Operation != "livez")
}

// refuseOver answers on such a connection, and ends it.
func (s *Server) refuseOver(w *answer) {
	w.Header().Set("Connection", "close")
	w.refuse(api.NewProblem(Overloaded, "the service has its %d connections", s.cfg.maxConnections).After(api.RetryLater))
}

// timeouts bound what is asked of the store. A context with a timer of its own
// for every request is a good part of what a short one costs, so those that come
// soon after one another share one: a request gets the whole time, or up to a
// sixteenth less. A store that is punctual needs only be told.
type timeouts struct {
	each time.Duration
	told bool // the store is punctual

	mu     sync.Mutex
	last   context.Context
	cancel context.CancelFunc // of last; one that is replaced ends by itself
	until  time.Time          // last is shared so long
}

// begin returns a context that ends in time, counted from now, and not with the
// client: what has been begun is carried through. It has the values of ctx.
func (t *timeouts) begin(ctx context.Context, now time.Time) context.Context {
	if t.told {
		return &told{context.WithoutCancel(ctx), now.Add(t.each)}
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

// close lets go of the timer. A caller that asks a closed store still has time to be
// told so.
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

// told is the context of a call that ends by itself at a deadline, which it does
// not show in any other way.
type told struct {
	context.Context // without an end
	deadline        time.Time
}

// Deadline implements [context.Context].
func (c *told) Deadline() (time.Time, bool) { return c.deadline, true }
