package postgresdriver

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/internal/oneline"
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
	conns    *pgxpool.Pool
	rotates  bool // the password is in a file, which is read for each connection
	patience patience

	mu             sync.Mutex
	accepted       bool                     // a password of the file, once
	open           map[*pgx.Conn]*connState // connections
	busy           int                      // callers that were let through
	lines          [renewing + 1]list.List  // of *waiting, by urgency
	refusals       int                      // in a row
	why            error                    // of the last; nil if the last attempt succeeded
	until          time.Time                // when the next attempt may be made
	timer          *time.Timer
	lastUnanswered time.Time // when a renewal was last given up without an answer
	shared         time.Time // until when calls share the connections with one in the background
}

// connState is the state of a connection in a pool.
type connState struct {
	heard time.Time // when the server last answered
	taken time.Time // when the last call began to take it
	by    urgency   // of that call
}

// waiting is a caller that waits.
type waiting struct {
	called chan struct{} // closed when it may go on
	err    error         // or why it may not; set before called is closed
}

// noteSilence notes that a renewal was given up without an answer.
func (p *pool) noteSilence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastUnanswered = time.Now()
}

// mayBeSilent reports whether a connection may be as silent as the connection of the last
// renewal that was given up.
func (p *pool) mayBeSilent(conn *pgx.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.open[conn]
	return l != nil && l.heard.Before(p.lastUnanswered)
}

// takeToRenew takes a connection for a renewal. It uses one that may be silent only if the server
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
			l := p.state(conn)
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
		err = oneline.Join(err, last)
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

// acquireTrusted is acquire for a connection that is not silent. If there are as many as
// there may be, it closes a silent one.
func (p *pool) acquireTrusted(ctx context.Context) (*pgxpool.Conn, error) {
	for {
		conn, err := p.acquire(ctx)
		if err != nil || !p.mayBeSilent(conn.Conn()) {
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

// state returns the state of a connection. Only the caller that has taken it may call state.
func (p *pool) state(conn *pgxpool.Conn) *connState {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.open[conn.Conn()]; l != nil {
		return l
	}
	return &connState{} // its closing has begun
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
		p.dropIdle(p.state(conn).taken)
	case p.count() > allConns: // a connection came late, after all waiting callers had left
		p.drop(conn)
	}
	p.mu.Lock()
	if l := p.open[conn.Conn()]; l != nil {
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
		if p.state(conn).heard.Before(began) {
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
	p.disconnected(conn.Conn())
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
