package overview

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Bounds of the requests to the store of all pages together.
const (
	// RequestsPerSecond bounds the requests to the store in the long run.
	RequestsPerSecond = 200
	// burst is how many requests may come at one moment beyond that.
	burst = 50
	// keepFor is how long an answer is kept after its last use.
	keepFor = 10 * time.Second
)

// pace spaces the requests of all pages.
type pace struct {
	log  *slog.Logger
	turn chan struct{} // has room for the next question
	next time.Time     // when the request after the last one is due; for the question that is next

	mu   sync.Mutex
	told time.Time // when a defect was logged
}

// wait waits until the store may be asked, and reports false if ctx ends before that. A
// question that ends early uses up no request.
func (p *pace) wait(ctx context.Context) bool {
	const each = time.Second / RequestsPerSecond
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-p.turn }()
	now := time.Now()
	due := p.next
	if earliest := now.Add(-burst * each); due.Before(earliest) {
		due = earliest
	}
	if !timing.Sleep(ctx, due.Sub(now)) {
		return false
	}
	p.next = due.Add(each)
	return true
}

// shared keeps the store's answers to one kind of question, for all pages. Each question is
// asked by one request at a time, and again only when its last answer is no longer fresh.
type shared[K comparable, V any] struct {
	pace  *pace
	start func(func()) bool
	limit time.Duration // of one request
	fresh time.Duration
	most  int // answers that are kept
	ask   func(context.Context, K) (V, error)

	mu    sync.Mutex
	all   map[K]*answer[V]
	swept time.Time // when old answers were dropped
}

// answer is the last answer to one question.
type answer[V any] struct {
	v     V
	at    time.Time // of v; zero without one
	asked time.Time // when the last request ended; zero before the first
	err   error     // of the last request

	asking *question // nil without one
}

// question is one that waits for its turn or for the store.
type question struct {
	callers int  // that wait for the answer
	sent    bool // to the store
	leave   context.CancelFunc
	done    chan struct{} // closed when there is an answer
}

// ErrBusy is the error of a question that was not asked, because there are too many.
var ErrBusy = errors.New("the store has not been asked, because the pages ask it too much")

var errLate = fmt.Errorf("%w: no answer in time", driver.ErrUnavailable)

// get returns a fresh answer, asking the store if need be. If ctx ends before that, it
// returns the last answer with [ErrBusy] or, if the store has been asked, an error that
// matches [driver.ErrUnavailable].
func (s *shared[K, V]) get(ctx context.Context, key K) answer[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.all[key]
	if a == nil {
		a = new(answer[V])
	}
	switch {
	case time.Since(a.asked) < s.fresh:
		return *a
	case ctx.Err() != nil:
		return a.but(ErrBusy)
	case a.asking == nil && !s.begin(key, a):
		return a.but(driver.ErrClosed)
	}
	q := a.asking
	q.callers++
	s.mu.Unlock()
	select {
	case <-q.done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	q.callers--
	switch {
	case a.asking != q:
		return *a
	case q.sent:
		return a.but(errLate)
	case q.callers == 0:
		q.leave()
		if a.asking = nil; a.asked.IsZero() {
			delete(s.all, key)
		}
	}
	return a.but(ErrBusy)
}

// but returns the answer with another error.
func (a answer[V]) but(err error) answer[V] {
	a.err = err
	return a
}

// last returns the last answer without asking.
func (s *shared[K, V]) last(key K) answer[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.all[key]; a != nil {
		return *a
	}
	return answer[V]{}
}

// begin begins a question, which waits for its turn while a caller waits for it. Once sent it
// does not end with its callers. It reports false if the service is about to end. The caller
// holds mu.
func (s *shared[K, V]) begin(key K, a *answer[V]) bool {
	ctx, leave := context.WithCancel(context.Background())
	q := &question{leave: leave, done: make(chan struct{})}
	if !s.start(func() {
		defer leave()
		if s.pace.wait(ctx) && s.send(q) {
			v, err := s.guarded(key)
			s.end(a, v, err)
		}
	}) {
		leave()
		return false
	}
	s.sweep()
	a.asking = q
	s.all[key] = a
	return true
}

// send notes that a question goes to the store, unless all its callers have left.
func (s *shared[K, V]) send(q *question) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.sent = q.callers > 0
	return q.sent
}

// end takes the answer to a question.
func (s *shared[K, V]) end(a *answer[V], v V, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if a.asked, a.err = now, err; err == nil {
		a.v, a.at = v, now
	}
	close(a.asking.done)
	a.asking = nil
}

// sweep drops old answers, and further answers if there are too many. The caller holds mu.
func (s *shared[K, V]) sweep() {
	now := time.Now()
	old := now.Sub(s.swept) > keepFor
	if old {
		s.swept = now
	}
	for k, a := range s.all {
		full := len(s.all) >= s.most
		if !full && !old {
			return
		}
		if a.asking == nil && (full || now.Sub(a.asked) > max(keepFor, s.fresh)) {
			delete(s.all, k)
		}
	}
}

// ErrDefect is the error of a question in which the store's code panicked.
var ErrDefect = errors.New("the store's code has failed")

// guarded asks the store. A panic in it fails this request alone.
func (s *shared[K, V]) guarded(key K) (_ V, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.limit)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = ErrDefect
			s.pace.defect(v)
		}
	}()
	return s.ask(ctx, key)
}

// defect logs a panic, once a minute: each request may have the same.
func (p *pace) defect(v any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.told) >= time.Minute {
		p.told = now
		p.log.Error("leasehold: a look at the store failed", "panic", v, "stack", string(debug.Stack()))
	}
}
