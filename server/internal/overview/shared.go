package overview

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
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
	log *slog.Logger

	mu   sync.Mutex
	next time.Time // when the request after the last one is due
	told time.Time // when a defect was logged
}

// wait waits until the store may be asked, and reports false if ctx ends before that.
func (p *pace) wait(ctx context.Context) bool {
	const each = time.Second / RequestsPerSecond
	p.mu.Lock()
	now := time.Now()
	due := p.next
	if earliest := now.Add(-burst * each); due.Before(earliest) {
		due = earliest
	}
	if end, ok := ctx.Deadline(); ctx.Err() != nil || ok && due.After(end) {
		p.mu.Unlock()
		return false
	}
	p.next = due.Add(each)
	p.mu.Unlock()
	select {
	case <-time.After(due.Sub(now)):
		return true
	case <-ctx.Done():
		return false
	}
}

// shared keeps the store's answers to one kind of question, for all pages. Each question is
// asked by one request at a time, and again only when its last answer is no longer fresh.
type shared[K comparable, V any] struct {
	pace  *pace
	limit time.Duration // of one request
	fresh time.Duration
	ask   func(context.Context, K) (V, error)

	mu    sync.Mutex
	all   map[K]*answer[V]
	swept time.Time // when old answers were dropped
}

func newShared[K comparable, V any](p *pace, limit, fresh time.Duration, ask func(context.Context, K) (V, error)) *shared[K, V] {
	return &shared[K, V]{pace: p, limit: limit, fresh: fresh, ask: ask, all: make(map[K]*answer[V])}
}

// answer is the last answer to one question.
type answer[V any] struct {
	v     V
	at    time.Time // of v; zero if there is none
	asked time.Time // when the last request ended; zero if there was none
	err   error     // of the last request

	asking chan struct{} // closed at the end of the request under way; nil without one
}

// get returns a fresh answer, asking the store if need be. If ctx ends or the request fails,
// it returns the last answer.
func (s *shared[K, V]) get(ctx context.Context, key K) answer[V] {
	s.mu.Lock()
	a := s.of(key)
	switch asking := a.asking; {
	case time.Since(a.asked) < s.fresh:
		s.mu.Unlock()
	case asking != nil:
		s.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
	default:
		a.asking = make(chan struct{})
		s.mu.Unlock()
		s.renew(ctx, key, a)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return *a
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

// of returns the entry of a question, and drops old ones. The caller holds mu.
func (s *shared[K, V]) of(key K) *answer[V] {
	now := time.Now()
	if now.Sub(s.swept) > keepFor {
		for k, a := range s.all {
			if a.asking == nil && now.Sub(a.asked) > max(keepFor, s.fresh) {
				delete(s.all, k)
			}
		}
		s.swept = now
	}
	a := s.all[key]
	if a == nil {
		a = new(answer[V])
		s.all[key] = a
	}
	return a
}

// renew asks the store. The request does not end with ctx, since other pages wait for it too.
func (s *shared[K, V]) renew(ctx context.Context, key K, a *answer[V]) {
	var v V
	var err error
	asked := s.pace.wait(ctx)
	if asked {
		v, err = s.guarded(context.WithoutCancel(ctx), key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(a.asking)
	a.asking = nil
	if !asked {
		return
	}
	now := time.Now()
	if a.asked, a.err = now, err; err == nil {
		a.v, a.at = v, now
	}
}

var errDefect = errors.New("the store's code has failed")

// guarded asks the store. A panic in it fails this request alone.
func (s *shared[K, V]) guarded(ctx context.Context, key K) (_ V, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = errDefect
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
