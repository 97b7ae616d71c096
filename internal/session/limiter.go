package session

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

const (
	// inFlight bounds the lock requests that a session has under way. It keeps a store
	// busy, and is small enough that each request is answered in a small part of its
	// time limit. If all callers of a burst sent at once, most requests would time out
	// while the store serves earlier ones, and would be repeated.
	inFlight = 256
	// span is the interval in which the limiter counts. When a request is answered,
	// requests that left in an earlier span no longer count: their node hangs, or they
	// are slow for another reason, and they must not block requests to healthy nodes.
	span = 250 * time.Millisecond
	// firstProbes is how many more requests may start after a span without an answer,
	// because all requests under way may be at one hanging node. The total doubles with
	// each further such span; a single step adds at most the limit.
	firstProbes = 16
)

// Errors of requests that were not sent.
var (
	errNotAsked = fmt.Errorf("%w: not asked yet", driver.ErrUnavailable)
	errCrowded  = fmt.Errorf("%w: too many requests are under way", errNotAsked)
)

// limiter bounds the requests under way, and lets them start in the order of their arrival.
type limiter struct {
	most     int // how many requests may be under way
	mu       sync.Mutex
	first    spanNumber // the oldest span whose requests count
	spans    []int      // requests under way by the span in which they started, starting with first
	busy     int        // the sum of spans
	answered bool       // a request was answered in this span
	probes   int        // how many requests may start beyond the limit
	line     list.List  // of *queuedRequest
	timer    *time.Timer
}

// spanNumber is the number of the span in which a request started. Spans advance only while
// requests queue.
type spanNumber int

// queuedRequest is a request that waits for its turn.
type queuedRequest struct {
	called chan struct{} // closed when it may start
	span   spanNumber
}

// tryStart lets a request start if fewer than the limit are under way; then no request
// queues. The caller must call end afterwards.
func (g *limiter) tryStart() (spanNumber, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy >= g.most {
		return 0, false
	}
	return g.countStarted(), true
}

// countStarted counts a request that starts. The caller holds mu.
func (g *limiter) countStarted() spanNumber {
	if len(g.spans) == 0 {
		g.spans = append(g.spans, 0)
	}
	now := len(g.spans) - 1
	g.spans[now]++
	g.busy++
	return g.first + spanNumber(now)
}

// wait lets a request start when its turn has come. It returns false if ctx or closing
// ended before, or if timeLeft returned 0 or less.
func (g *limiter) wait(ctx context.Context, closing <-chan struct{}, timeLeft func() time.Duration) (spanNumber, bool) {
	s := &queuedRequest{called: make(chan struct{})}
	g.mu.Lock()
	place := g.line.PushBack(s)
	if g.line.Len() == 1 {
		g.answered = false // before this span
		g.startTimer()
	}
	g.startQueued() // a request may have ended since tryStart
	g.mu.Unlock()
	late := time.NewTimer(timeLeft())
	defer late.Stop()
	for {
		select {
		case <-s.called:
			return s.span, true
		case <-ctx.Done():
			return g.quit(s, place)
		case <-closing:
			return g.quit(s, place)
		case <-late.C:
		}
		left := timeLeft()
		if left <= 0 {
			return g.quit(s, place)
		}
		late.Reset(left)
	}
}

// quit removes a request from the queue, unless its turn came at the same moment.
func (g *limiter) quit(s *queuedRequest, place *list.Element) (spanNumber, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-s.called:
		return s.span, true
	default:
	}
	g.line.Remove(place)
	g.stopIfEmpty()
	return 0, false
}

// end counts a request that has ended; answered reports whether the store answered.
func (g *limiter) end(n spanNumber, answered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n >= g.first {
		g.spans[n-g.first]--
		g.busy--
	}
	if answered {
		g.answered, g.probes = true, 0
		g.writeOff(n - 1)
	}
	g.startQueued()
}

// writeOff stops counting requests that started before the span. The caller holds mu.
func (g *limiter) writeOff(before spanNumber) {
	for g.first < before {
		g.busy -= g.spans[0]
		g.spans = g.spans[1:]
		g.first++
	}
}

// startQueued lets queued requests start, up to the limit. The caller holds mu.
func (g *limiter) startQueued() {
	for g.line.Len() > 0 && g.busy < g.most+g.probes {
		s := g.line.Remove(g.line.Front()).(*queuedRequest)
		s.span = g.countStarted()
		close(s.called)
	}
	g.stopIfEmpty()
}

// tick starts the next span.
func (g *limiter) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.answered {
		g.probes += min(max(firstProbes, g.probes), g.most)
	}
	g.answered = false
	g.spans = append(g.spans, 0)
	if g.startQueued(); g.line.Len() > 0 {
		g.startTimer()
	}
}

// startTimer starts the timer of the span. The caller holds mu.
func (g *limiter) startTimer() {
	if g.timer == nil {
		g.timer = time.AfterFunc(span, g.tick)
		return
	}
	g.timer.Reset(span)
}

// stopIfEmpty stops counting spans if the queue is empty. The caller holds mu.
func (g *limiter) stopIfEmpty() {
	if g.line.Len() == 0 && g.timer != nil {
		g.timer.Stop()
		g.probes = 0
	}
}
