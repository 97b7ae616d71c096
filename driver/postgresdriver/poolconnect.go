package postgresdriver

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

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
	return ctx.Value(sorting{}) != nil || ctx.Value(unpaused{}) != nil && p.mayBeSilent(conn)
}

// applyTo sets hooks of a pool that limit attempts to connect, count connections, and
// record why a call waits.
func (p *pool) applyTo(cfg *pgxpool.Config) {
	before, after, end := cfg.BeforeConnect, cfg.AfterConnect, cfg.BeforeClose
	cfg.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		noteAsked(ctx, false)
		skip, _ := ctx.Value(skipping{}).(int) // above 0: the attempt has begun
		if err := p.connectRefusal(); err != nil && skip == 0 && ctx.Value(unpaused{}) == nil {
			return err
		}
		c.ConnectTimeout = p.patience.begin(time.Now())
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
		p.patience.connected()
		if after != nil {
			if err := after(ctx, conn); err != nil {
				return err
			}
		}
		p.connected(conn)
		return nil
	}
	cfg.BeforeClose = func(conn *pgx.Conn) {
		p.disconnected(conn)
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

// connectRefusal returns why no connection may be made now; nil if one may.
func (p *pool) connectRefusal() error {
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
	p.open[conn], p.accepted = &connState{heard: time.Now()}, true
	if !readOnly(p.why) {
		p.refusals, p.why = 0, nil
	}
	p.admitWaiting()
}

// disconnected notes that a connection is closed.
func (p *pool) disconnected(conn *pgx.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
	p.admitWaiting()
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
	return len(p.open) > 0
}

// paused lets callers through that may connect again.
func (p *pool) paused() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.admitWaiting()
}

// count returns how many connections there are.
func (p *pool) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
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

// withoutConnections reports whether the pool is empty because the server refuses connections.
func (p *pool) withoutConnections() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.why != nil && len(p.open) == 0
}
