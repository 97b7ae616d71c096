package postgresdriver

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sharing is for how long other calls share the connections with one in the background. Without
// it the sweep that follows the first call of a process would cost it a second connection.
const sharing = 100 * time.Millisecond

// Bounds of the pause after the server has refused a connection.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// Bounds of connections. Renewals may use more than other calls, so that they never wait
// for these. pgxpool waits up to 15 s for a server to end a connection, so a pool has
// room for as many connections that are being closed.
const (
	mainConns  = 8
	renewConns = 4
	allConns   = mainConns + renewConns
	withClosed = 2 * allConns
)

// urgency orders calls by how much they need a connection. Releases go before other calls
// because a crowd would else delay each release for longer than its try lasts: on a table
// whose writes took 100 ms, with 600 callers, no release was answered within 5 s.
type urgency int

const (
	ordinary   urgency = iota
	background         // makes no connection if there is one; such calls are rare
	hurried            // served before other calls
	pressing           // waits for no other call; a renewal
	renewing           // does so, and tries to connect whenever no connection is idle
)

// urgent is the key under which the context of a call has its urgency.
type urgent struct{}

// pool is a pool of connections that serves its callers in the order of their arrival,
// urgent callers first. While the server refuses connections, callers share the existing
// ones, and one caller at a time tries to make another, less and less often. With pgxpool
// alone, each caller that finds none free would try to make one, and fail: a server at its
// limit would spend its time on refusing (527 attempts in the first second of 100 waiters,
// now 12). A second pool for renewals would take more connections than a small role has.
type pool struct {
	conns   *pgxpool.Pool
	rotates bool // the password is in a file, which is read for each connection

	mu       sync.Mutex
	accepted bool                    // a password of the file, once
	there    map[*pgx.Conn]*life     // connections
	busy     int                     // callers that were let through
	lines    [renewing + 1]list.List // of *waiting, by urgency
	refusals int                     // in a row
	why      error                   // of the last; nil if the last attempt succeeded
	until    time.Time               // when the next attempt may be made
	timer    *time.Timer
	missed   time.Time // when a renewal was last given up without an answer
	shared   time.Time // until when calls share the connections with one in the background
}

// life is the state of a connection in a pool.
type life struct {
	heard time.Time // when the server last answered
	taken time.Time // when the last call began to take it
	by    urgency   // of that call
}

// waiting is a caller that waits.
type waiting struct {
	called chan struct{} // closed when it may go on
	err    error         // or why it may not; set before called is closed
}

// denied is why an attempt to connect was not made, which is why the last one failed.
type denied struct{ error }

func (d denied) Unwrap() error { return d.error }

// asked is the key under which the context of a call that takes a connection has an
// *atomic.Bool. It reports whether an idle connection is being checked.
type asked struct{}

func noteAsked(ctx context.Context, is bool) {
	if note, ok := ctx.Value(asked{}).(*atomic.Bool); ok {
		note.Store(is)
	}
}

// sorting is the key of a context with which idle connections are taken only to be examined.
type sorting struct{}

// unpaused is the key of a context with which a connection may be made now.
type unpaused struct{}

// setAside reports whether the call that takes a connection only sorts it out.
func (p *pool) setAside(ctx context.Context, conn *pgx.Conn) bool {
	return ctx.Value(sorting{}) != nil || ctx.Value(unpaused{}) != nil && p.doubts(conn)
}

// applyTo sets hooks of a pool that limit attempts to connect, count connections, and
// record why a call waits.
func (p *pool) applyTo(cfg *pgxpool.Config) {
	before, after, end := cfg.BeforeConnect, cfg.AfterConnect, cfg.BeforeClose
	cfg.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		noteAsked(ctx, false)
		skip, _ := ctx.Value(skipping{}).(int) // above 0: the attempt has begun
		if err := p.notNow(); err != nil && skip == 0 && ctx.Value(unpaused{}) == nil {
			return err
		}
		if before != nil {
			if err := before(ctx, c); err != nil {
				return err
			}
		}
		for ; skip > 0; skip-- {
			skipHost(&c.Config)
		}
		return nil
	}
	ping := cfg.ShouldPing
	if ping == nil {
		ping = func(_ context.Context, idle pgxpool.ShouldPingParams) bool { return idle.IdleDuration > time.Second }
	}
	cfg.ShouldPing = func(ctx context.Context, idle pgxpool.ShouldPingParams) bool {
		is := !p.setAside(ctx, idle.Conn) && ping(ctx, idle)
		noteAsked(ctx, is)
		return is
	}
	if prepare := preparation(cfg); prepare != nil {
		cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
			if p.setAside(ctx, conn) {
				return true, nil
			}
			return prepare(ctx, conn)
		}
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if after != nil {
			if err := after(ctx, conn); err != nil {
				return err
			}
		}
		p.connected(conn)
		return nil
	}
	cfg.BeforeClose = func(conn *pgx.Conn) {
		p.gone(conn)
		if end != nil {
			end(conn)
		}
	}
}

// preparation returns the application's hook for each connection that is taken, or nil.
func preparation(cfg *pgxpool.Config) func(context.Context, *pgx.Conn) (bool, error) {
	acquire := cfg.BeforeAcquire //nolint:staticcheck // deprecated, but the application may have set it
	if cfg.PrepareConn != nil || acquire == nil {
		return cfg.PrepareConn
	}
	return func(ctx context.Context, conn *pgx.Conn) (bool, error) { return acquire(ctx, conn), nil }
}

// notNow returns why no connection may be made now; nil if one may.
func (p *pool) notNow() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mayConnect() {
		return nil
	}
	return denied{p.why}
}

// connected records that the server has accepted a connection. It may still answer no
// requests on it.
func (p *pool) connected(conn *pgx.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.there[conn], p.accepted = &life{heard: time.Now()}, true
	if !readOnly(p.why) {
		p.refusals, p.why = 0, nil
	}
	p.call()
}

// gone notes that a connection is closed.
func (p *pool) gone(conn *pgx.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.there, conn)
	p.call()
}

// refused records that the server has refused a connection or does not serve it, and
// reports whether there are connections. Of several refusals at a time the first counts.
func (p *pool) refused(err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mayConnect() {
		pause := min(minPause<<min(p.refusals, 10), maxPause)
		pause -= rand.N(pause / 2) // many clients may have been refused at one moment
		p.refusals++
		p.until = time.Now().Add(pause)
		if p.timer == nil {
			p.timer = time.AfterFunc(pause, p.paused)
		} else {
			p.timer.Reset(pause)
		}
	}
	p.why = err
	return len(p.there) > 0
}

// paused lets callers through that may connect again.
func (p *pool) paused() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.call()
}

// count returns how many connections there are.
func (p *pool) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.there)
}

// has reports whether there are connections.
func (p *pool) has() bool { return p.count() > 0 }

// fill makes a connection if the pool is empty.
func (p *pool) fill(ctx context.Context) error {
	if p.has() {
		return nil
	}
	conn, err := p.take(ctx, background)
	if err == nil {
		p.give(conn, nil)
	}
	return err
}

// starved reports whether the pool is empty because the server refuses connections.
func (p *pool) starved() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.why != nil && len(p.there) == 0
}

// distrust notes that a renewal was given up without an answer.
func (p *pool) distrust() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missed = time.Now()
}

// doubts reports whether a connection may be as silent as the connection of the last
// renewal that was given up.
func (p *pool) doubts(conn *pgx.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.there[conn]
	return l != nil && l.heard.Before(p.missed)
}

// takeToRenew takes a connection for a renewal. It uses a doubtful one only if the server
// refuses another, or half of the time is over.
func (p *pool) takeToRenew(ctx context.Context) (*pgxpool.Conn, error) {
	half, cancel := context.WithCancel(ctx) // without a deadline: that would condemn idle connections
	defer cancel()
	if p.has() {
		defer time.AfterFunc(timeLeft(ctx)/2, cancel).Stop()
	}
	conn, err := p.take(half, renewing)
	if err == nil || ctx.Err() != nil || isRefusal(err) && !p.has() {
		return conn, err
	}
	return p.take(ctx, pressing)
}

// take waits for a connection until ctx ends. The connection is to be given back by give.
func (p *pool) take(ctx context.Context, u urgency) (*pgxpool.Conn, error) {
	var alive atomic.Bool
	asking := context.WithValue(ctx, asked{}, &alive)
	acquire := p.acquire
	if u == renewing {
		asking, acquire = context.WithValue(asking, unpaused{}, true), p.acquireTrusted
	}
	for wait := false; ; {
		if err := p.enter(ctx, u, wait); err != nil {
			return nil, err
		}
		began := time.Now()
		conn, err := acquire(asking)
		if err == nil {
			l := p.life(conn)
			l.taken, l.by = began, u
			return conn, nil
		}
		if alive.Load() && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.dropIdle(began)
		}
		// If no attempt was made, a connection is in use that no caller has: pgxpool still asks
		// whether it is alive, for one that has given up. This caller waits until that changes.
		wait = errors.As(err, new(denied))
		again := wait && p.has() || !wait && isRefusal(err) && p.refused(err)
		p.leave(err)
		if !again || u == renewing {
			return nil, err
		}
	}
}

// skipping is the key under which a context has the number of hosts that an attempt to connect
// leaves out.
type skipping struct{}

// acquire takes a connection of pgxpool, at a host that hides no other if there is one.
func (p *pool) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := p.conns.Acquire(ctx)
	for skip, last := 1, err; hidesHosts(last); skip++ {
		if conn, last = p.conns.Acquire(context.WithValue(ctx, skipping{}, skip)); last == nil {
			return conn, nil
		}
		err = errors.Join(err, last)
	}
	if p.mayBeAhead(err) {
		err = ahead{err}
	}
	return conn, err
}

// mayBeAhead reports whether err is the refusal of a password of a file of which an earlier one
// was accepted: the server may know the next one already.
func (p *pool) mayBeAhead(err error) bool {
	var told *pgconn.PgError
	if !p.rotates || !errors.As(err, &told) || told.Code != "28P01" {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// acquireTrusted is acquire for a connection without doubts. If there are as many as
// there may be, it closes a doubtful one.
func (p *pool) acquireTrusted(ctx context.Context) (*pgxpool.Conn, error) {
	for {
		conn, err := p.acquire(ctx)
		if err != nil || !p.doubts(conn.Conn()) {
			return conn, err
		}
		if p.count() >= allConns {
			p.drop(conn)
			conn.Release()
			continue
		}
		defer conn.Release() // not before there is another one, or it would come again
	}
}

// isRefusal reports whether an attempt to connect has failed, as opposed to the time limit
// of a caller that waited for it.
func isRefusal(err error) bool {
	var failed *pgconn.ConnectError
	return errors.As(err, &failed) || err != nil && !isTimeout(err)
}

func isTimeout(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// life returns the state of a connection. Only the caller that has taken it may call life.
func (p *pool) life(conn *pgxpool.Conn) *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.there[conn.Conn()]; l != nil {
		return l
	}
	return &life{} // its closing has begun
}

// give gives a connection back, on which a call has ended with err.
func (p *pool) give(conn *pgxpool.Conn, err error) {
	switch {
	case readOnly(err):
		// Its server was the primary, or is to be. Perhaps the name leads to another by now.
		p.refused(err)
		p.drop(conn)
		p.dropIdle(time.Now())
	case conn.Conn().IsClosed() && errors.Is(err, context.DeadlineExceeded):
		p.dropIdle(p.life(conn).taken)
	case p.count() > allConns: // a connection came late, after all waiting callers had left
		p.drop(conn)
	}
	p.mu.Lock()
	if l := p.there[conn.Conn()]; l != nil {
		if !isTimeout(err) {
			l.heard = time.Now()
		}
		if l.by == background {
			p.shared = time.Time{}
		}
	}
	if err == nil && readOnly(p.why) {
		p.refusals, p.why = 0, nil
	}
	p.mu.Unlock()
	conn.Release()
	p.leave(nil)
}

// dropIdle closes the idle connections that the server has not answered since an unanswered
// call began: they lead to the same silence, and each would cost another timeout. It keeps
// younger connections, which may have been made because of the abandoned calls.
func (p *pool) dropIdle(began time.Time) {
	for _, conn := range p.conns.AcquireAllIdle(context.WithValue(context.Background(), sorting{}, true)) {
		if p.life(conn).heard.Before(began) {
			p.drop(conn)
		}
		conn.Release()
	}
}

// drop closes a connection without waiting for its server.
func (p *pool) drop(conn *pgxpool.Conn) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = conn.Conn().Close(ended)
	p.gone(conn.Conn())
}

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
		return max(len(p.there), 1)
	case p.why == nil && time.Now().Before(p.shared):
		return min(max(len(p.there), 1), most)
	case p.why == nil:
		return most
	case p.mayConnect():
		return min(len(p.there)+1, most)
	default:
		return len(p.there)
	}
}

// sweptAlone reports whether a call in the background has the only connection, for a moment.
// The caller holds mu.
func (p *pool) sweptAlone() bool {
	return p.busy == 1 && len(p.there) == 1 && time.Now().Before(p.shared)
}

// mayEnter reports whether a caller need not wait in a line. A renewal that has the time waits
// for the only connection if a call in the background has it. The caller holds mu.
func (p *pool) mayEnter(ctx context.Context, u urgency, wait bool) bool {
	switch {
	case wait && !p.mayConnect(),
		u < pressing && p.lines[hurried].Len() > 0,
		u == ordinary && p.lines[ordinary].Len() > 0,
		u == renewing && p.sweptAlone() && timeLeft(ctx) > 4*sharing:
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
		return p.because(ctx.Err())
	}
}

// because adds to the end of a wait that the server refuses connections, if it does.
func (p *pool) because(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why == nil || len(p.there) > 0 {
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
	p.call()
}

// leave ends what enter began. If the pool is empty, the reason why no connection could be
// made becomes the error of all waiting callers.
func (p *pool) leave(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	if len(p.there) == 0 && p.busy == 0 && isRefusal(err) {
		for i := range p.lines {
			for line := &p.lines[i]; line.Len() > 0; {
				s := line.Remove(line.Front()).(*waiting)
				s.err = err
				close(s.called)
			}
		}
	}
	p.call()
}

// call lets waiting calls through, up to the limit. Calls in the background are rare, and
// precede ordinary calls if a connection is idle. The caller holds mu.
func (p *pool) call() {
	for _, u := range []urgency{renewing, pressing, hurried, background, ordinary} {
		for line := &p.lines[u]; line.Len() > 0; {
			if p.busy >= p.room(u) || u == renewing && p.sweptAlone() {
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

// close closes the connections, and waits until none is in use.
func (p *pool) close() {
	p.conns.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
}
