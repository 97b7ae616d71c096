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
	// inFlight bounds how many requests for locks a session has under way. It
	// keeps a store busy, and lets the last of them be answered in a small part of
	// the time that a try has: if all callers of a burst asked at once, the time
	// of most would pass while the store serves those before them, and all would
	// ask again.
	inFlight = 256
	// span is the time in which the gate counts. Requests that left a span before
	// one that is answered are at a node that hangs, or are slow for a reason of
	// their own: they count no more, and keep nobody from nodes that are well.
	span = 250 * time.Millisecond
	// firstProbes is how many may leave all the same after a span in which nobody
	// was answered: perhaps all that are under way are at one node. They are twice
	// as many after each further one, up to inFlight.
	firstProbes = 16
)

// errNotAsked is a request that did not come to be sent.
var (
	errNotAsked = fmt.Errorf("%w: not asked yet", driver.ErrUnavailable)
	errCrowded  = fmt.Errorf("%w: too many requests are under way", errNotAsked)
)

// gate lets requests leave in the order in which they come, as many as may be
// under way.
type gate struct {
	mu       sync.Mutex
	first    pass      // the oldest span whose requests count
	spans    []int     // requests under way by the span in which they left, from first to the present
	busy     int       // their sum
	answered bool      // somebody was, in this span
	probes   int       // that may leave beyond inFlight
	line     list.List // of *standing
	timer    *time.Timer
}

// pass is the span in which a request left. They are counted while somebody stands
// in the line.
type pass int

// standing is a request that may not leave yet.
type standing struct {
	called chan struct{} // closed when it may
	pass   pass
}

// pass lets a request leave that finds nobody before it: whoever stands in the line does
// so because as many are under way as may be. It is to be followed by leave.
func (g *gate) pass() (pass, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy >= inFlight {
		return 0, false
	}
	return g.let(), true
}

// let counts a request that leaves. The caller holds mu.
func (g *gate) let() pass {
	if len(g.spans) == 0 {
		g.spans = append(g.spans, 0)
	}
	now := len(g.spans) - 1
	g.spans[now]++
	g.busy++
	return g.first + pass(now)
}

// wait lets a request leave when its turn has come, as pass does. It is false if
// ctx or closing ended before that, or there was no patience left.
func (g *gate) wait(ctx context.Context, closing <-chan struct{}, patience func() time.Duration) (pass, bool) {
	s := &standing{called: make(chan struct{})}
	g.mu.Lock()
	place := g.line.PushBack(s)
	if g.line.Len() == 1 {
		g.answered = false // before this span
		g.watch()
	}
	g.call() // somebody may have left since
	g.mu.Unlock()
	late := time.NewTimer(patience())
	defer late.Stop()
	for {
		select {
		case <-s.called:
			return s.pass, true
		case <-ctx.Done():
			return g.quit(s, place)
		case <-closing:
			return g.quit(s, place)
		case <-late.C:
		}
		left := patience()
		if left <= 0 {
			return g.quit(s, place)
		}
		late.Reset(left)
	}
}

// quit takes a request out of the line, unless it was called at the same moment.
func (g *gate) quit(s *standing, place *list.Element) (pass, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-s.called:
		return s.pass, true
	default:
	}
	g.line.Remove(place)
	g.rest()
	return 0, false
}

// leave ends a request that was under way; answered tells that the store did.
func (g *gate) leave(p pass, answered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p >= g.first {
		g.spans[p-g.first]--
		g.busy--
	}
	if answered {
		g.answered, g.probes = true, 0
		g.writeOff(p - 1)
	}
	g.call()
}

// writeOff has requests count no more that left before a span, which has begun. The
// caller holds mu.
func (g *gate) writeOff(before pass) {
	for g.first < before {
		g.busy -= g.spans[0]
		g.spans = g.spans[1:]
		g.first++
	}
}

// call lets those leave for whom there is room. The caller holds mu.
func (g *gate) call() {
	for g.line.Len() > 0 && g.busy < inFlight+g.probes {
		s := g.line.Remove(g.line.Front()).(*standing)
		s.pass = g.let()
		close(s.called)
	}
	g.rest()
}

// tick begins another span.
func (g *gate) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.answered {
		g.probes += min(max(firstProbes, g.probes), inFlight)
	}
	g.answered = false
	g.spans = append(g.spans, 0)
	if g.call(); g.line.Len() > 0 {
		g.watch()
	}
}

// watch counts spans from now on. The caller holds mu.
func (g *gate) watch() {
	if g.timer == nil {
		g.timer = time.AfterFunc(span, g.tick)
		return
	}
	g.timer.Reset(span)
}

// rest counts no spans while nobody stands in the line. The caller holds mu.
func (g *gate) rest() {
	if g.line.Len() == 0 && g.timer != nil {
		g.timer.Stop()
		g.probes = 0
	}
}
