package postgresdriver

import (
	"container/list"
	"context"
	"fmt"
	"time"
)

// mayConnect reports whether a connection may be made now. The caller holds mu.
func (p *pool) mayConnect() bool { return p.why == nil || !time.Now().Before(p.until) }

// admit lets a caller through. The caller holds mu.
func (p *pool) admit(u urgency) {
	p.busy++
	if u == background {
		p.shared = time.Now().Add(sharing)
		time.AfterFunc(sharing, p.paused)
	}
}

// room returns how many callers may be let through: one more than there are connections may
// make another. The caller holds mu.
func (p *pool) room(u urgency) int {
	most := mainConns
	if u >= pressing {
		most = allConns
	}
	switch {
	case u == renewing, u == pressing && p.why == nil:
		return most
	case u == background:
		return max(len(p.open), 1)
	case p.why == nil && time.Now().Before(p.shared):
		return min(max(len(p.open), 1), most)
	case p.why == nil:
		return most
	case p.mayConnect():
		return min(len(p.open)+1, most)
	default:
		return len(p.open)
	}
}

// backgroundAlone reports whether a call in the background has the only connection, for a moment.
// The caller holds mu.
func (p *pool) backgroundAlone() bool {
	return p.busy == 1 && len(p.open) == 1 && time.Now().Before(p.shared)
}

// mayEnter reports whether a caller need not wait in a line. A renewal that has the time waits
// for the only connection if a call in the background has it. The caller holds mu.
func (p *pool) mayEnter(ctx context.Context, u urgency, wait bool) bool {
	switch {
	case wait && !p.mayConnect(),
		u < pressing && p.lines[hurried].Len() > 0,
		u == ordinary && p.lines[ordinary].Len() > 0,
		u == renewing && p.backgroundAlone() && timeLeft(ctx) > 4*sharing:
		return false
	}
	return p.busy < p.room(u)
}

// enter lets a caller through when it is its turn; if wait, at the front of the line, but
// not before a connection comes or goes, a caller leaves, or another attempt may be made.
func (p *pool) enter(ctx context.Context, u urgency, wait bool) error {
	p.mu.Lock()
	if p.mayEnter(ctx, u, wait) {
		p.admit(u)
		p.mu.Unlock()
		return nil
	}
	s := &waiting{called: make(chan struct{})}
	line := &p.lines[u]
	push := line.PushBack
	if wait {
		push = line.PushFront
	}
	place := push(s)
	p.mu.Unlock()
	select {
	case <-s.called:
		return s.err
	case <-ctx.Done():
		p.quit(s, line, place)
		return p.withReason(ctx.Err())
	}
}

// withReason adds to the end of a wait that the server refuses connections, if it does.
func (p *pool) withReason(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why == nil || len(p.open) > 0 {
		return err
	}
	return fmt.Errorf("%w: %w", err, p.why)
}

// quit takes a caller out of the line.
func (p *pool) quit(s *waiting, line *list.List, place *list.Element) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-s.called:
		if s.err == nil { // it was called at the same moment
			p.busy--
		}
	default:
		line.Remove(place)
	}
	p.admitWaiting()
}

// leave ends what enter began. If the pool is empty, the reason why no connection could be
// made becomes the error of all waiting callers.
func (p *pool) leave(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	if len(p.open) == 0 && p.busy == 0 && isRefusal(err) {
		for i := range p.lines {
			for line := &p.lines[i]; line.Len() > 0; {
				s := line.Remove(line.Front()).(*waiting)
				s.err = err
				close(s.called)
			}
		}
	}
	p.admitWaiting()
}

// admitWaiting lets waiting calls through, up to the limit. Calls in the background are rare, and
// precede ordinary calls if a connection is idle. The caller holds mu.
func (p *pool) admitWaiting() {
	for _, u := range []urgency{renewing, pressing, hurried, background, ordinary} {
		for line := &p.lines[u]; line.Len() > 0; {
			if p.busy >= p.room(u) || u == renewing && p.backgroundAlone() {
				if u == hurried {
					return
				}
				break
			}
			p.admit(u)
			close(line.Remove(line.Front()).(*waiting).called)
		}
	}
}
