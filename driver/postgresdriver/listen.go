package postgresdriver

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Pauses of a subscription.
const (
	soon   = 50 * time.Millisecond // before it connects again
	late   = 10 * time.Second      // the same, if its own message does not arrive
	silent = 10 * time.Second      // after which it looks whether the server is there
)

// subscription is a connection that listens to its own address and to the broadcast
// channel. It has an address once it has received its own message: a pooler may accept
// LISTEN and deliver no messages.
type subscription struct {
	t       *table
	address string
	receive func(body string)
	up      atomic.Bool
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

// Listen implements [roomdriver.Listener].
func (t *table) Listen(receive func(body string)) (driver.Subscription, error) {
	ctx, cancel := context.WithCancel(t.ctx)
	e := &subscription{t: t, address: "leasehold_" + strings.ToLower(rand.Text()), receive: receive, cancel: cancel}
	e.work.Go(func() { e.run(ctx) })
	return e, nil
}

// Address implements [driver.Subscription].
func (e *subscription) Address() string {
	if !e.up.Load() {
		return ""
	}
	return e.address
}

// Close implements [driver.Subscription].
func (e *subscription) Close() error {
	e.cancel()
	e.work.Wait()
	return nil
}

// run connects again whenever the connection is lost.
func (e *subscription) run(ctx context.Context) {
	for pause := soon; ctx.Err() == nil; pause = min(2*pause, late) {
		_ = e.listen(ctx)
		if e.up.Swap(false) {
			pause = soon
		}
		timing.Sleep(ctx, pause)
	}
}

// errNoConnections ends a subscription in favour of the calls.
var errNoConnections = errors.New("the server has no connection for calls")

// listen delivers messages until the connection is lost. Messages before its own first
// message may be lost, so all waiters are made to ask then. If the server accepts only one
// connection, the calls get it.
func (e *subscription) listen(ctx context.Context) error {
	if err := e.within(ctx, e.t.pool.fill); err != nil {
		return err
	}
	conn, err := e.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.t.cfg.timeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if err := e.within(ctx, func(ctx context.Context) error { return e.probe(ctx, conn) }); err != nil {
		return err
	}
	for !e.t.pool.withoutConnections() {
		var n *pgconn.Notification
		err := withTimeout(ctx, silent, func(ctx context.Context) (err error) {
			n, err = conn.WaitForNotification(ctx)
			return err
		})
		switch {
		case err == nil:
			e.receive(n.Payload)
		case ctx.Err() != nil || conn.IsClosed() || !errors.Is(err, context.DeadlineExceeded):
			return err
		default:
			if err := e.within(ctx, conn.Ping); err != nil {
				return err
			}
		}
	}
	return errNoConnections
}

// probe listens, and sends itself a message by another connection.
func (e *subscription) probe(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.PgConn().Exec(ctx, `LISTEN `+e.address+`; LISTEN `+e.t.cfg.broadcastChannel()).ReadAll(); err != nil {
		return err
	}
	if err := e.sendProbe(ctx); err != nil {
		return err
	}
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		return err
	}
	e.up.Store(true)
	e.receive("")
	if n.Payload != "" {
		e.receive(n.Payload)
	}
	return nil
}

// sendProbe sends the message.
func (e *subscription) sendProbe(ctx context.Context) error {
	conn, err := e.t.pool.take(ctx, background)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `SELECT pg_notify($1, '')`, e.address)
	e.t.pool.give(conn, err)
	return err
}

// connect makes a connection that is no part of a pool, at a host that hides no other if there
// is one.
func (e *subscription) connect(ctx context.Context) (conn *pgx.Conn, err error) {
	cfg := e.t.pool.conns.Config().ConnConfig
	if e.t.cfg.listen != "" {
		if cfg, err = pgx.ParseConfig(e.t.cfg.listen); err != nil {
			return nil, err
		}
	} else if e.t.before != nil {
		if err := e.t.before(ctx, cfg); err != nil {
			return nil, err
		}
	}
	cfg.OnNotification = nil
	for {
		err = e.within(ctx, func(ctx context.Context) error {
			conn, err = pgx.ConnectConfig(ctx, cfg)
			return err
		})
		if !hidesHosts(err) || !skipHost(&cfg.Config) {
			return conn, err
		}
	}
}

func (e *subscription) within(ctx context.Context, f func(context.Context) error) error {
	return withTimeout(ctx, e.t.cfg.timeout, f)
}

func withTimeout(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return f(ctx)
}
