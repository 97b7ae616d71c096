package natsdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// link is the connection of a table.
type link struct {
	timeout time.Duration
	dial    func() (*nats.Conn, error) // nil if the connection is the user's

	mu      sync.Mutex
	nc      *nats.Conn
	attempt *attempt // under way
	closed  bool
}

// attempt is an attempt to connect.
type attempt struct {
	done chan struct{}
	nc   *nats.Conn
	err  error
}

var (
	// errLost is the reason of a request whose connection was lost.
	errLost = errors.New("the connection was lost")
	// errClosed is the reason of a call after Close.
	errClosed = errors.New("the store is closed")
	// errSilent is the reason of a request that reached no server of JetStream.
	errSilent = errors.New("no server answers: JetStream is not enabled there, or the bucket has no leader for now")
)

// conn returns the connection. The first call makes it, and so does a call after it was
// closed, as it is if the server refuses its credentials twice. The attempt goes on if ctx ends.
func (l *link) conn(ctx context.Context) (*nats.Conn, error) {
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return nil, errClosed
	case l.nc != nil && (l.dial == nil || !l.nc.IsClosed()):
		defer l.mu.Unlock()
		return l.nc, nil
	}
	a := l.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		l.attempt = a
		go l.connect(a)
	}
	l.mu.Unlock()
	select {
	case <-a.done:
		return a.nc, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("not connected yet: %w", context.Cause(ctx))
	}
}

func (l *link) connect(a *attempt) {
	defer close(a.done)
	a.nc, a.err = l.dial()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempt = nil
	switch {
	case a.err != nil:
	case l.closed:
		a.nc.Close()
	default:
		l.nc = a.nc
	}
}

// close ends the connection if it is not the user's.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.nc != nil && l.dial != nil {
		l.nc.Close()
	}
}

// glance is how often a request looks whether its answer can still come.
const glance = 20 * time.Millisecond

// ask sends a request once, and returns its answer. The error matches [driver.ErrUnavailable]
// only if no server has received the request, or if the server has refused to route it. NATS answers "no
// responders" if there is no subscriber: the request was then given to no server of JetStream.
func (l *link) ask(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.timeout, fmt.Errorf("no answer within %v: %w", l.timeout, context.DeadlineExceeded))
	defer cancel()
	nc, err := l.conn(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	w := watch{nc: nc, subject: msg.Subject, reconnects: nc.Stats().Reconnects, last: nc.LastError()}
	if err := cmp.Or(context.Cause(ctx), w.over()); err != nil {
		return nil, unavailable(err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go w.run(ctx, stop)
	answer, err := nc.RequestMsgWithContext(ctx, msg)
	switch {
	case err == nil:
		return answer, nil
	case errors.Is(err, nats.ErrNoResponders):
		return nil, unavailable(errSilent)
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, unavailable(fmt.Errorf("the record has %d bytes, so the lock has too many waiters, or too many labels; "+
			"raise max_payload of the servers, which is %d: %w", len(msg.Data), nc.MaxPayload(), err))
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrHeadersNotSupported):
		return nil, unavailable(err)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if errors.Is(err, nats.ErrPermissionViolation) {
		return nil, permanent(err)
	}
	return nil, err
}

// watch ends a request whose answer cannot come any more, which NATS does not report to it.
type watch struct {
	nc         *nats.Conn
	subject    string
	reconnects uint64 // of the connection before the request
	last       error  // likewise
}

func (w *watch) run(ctx context.Context, stop context.CancelCauseFunc) {
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := w.over(); err != nil {
				stop(err)
				return
			}
		}
	}
}

// over returns why no answer can come: the connection was lost, or the server has refused to route
// the request, which its text names.
func (w *watch) over() error {
	if w.nc.Status() != nats.CONNECTED || w.nc.Stats().Reconnects != w.reconnects {
		return errLost
	}
	err := w.nc.LastError()
	if errors.Is(err, nats.ErrPermissionViolation) && err != w.last && strings.Contains(err.Error(), `"`+w.subject+`"`) { //nolint:errorlint // the same one
		return fmt.Errorf("the user lacks a right: allow it to publish to %s: %w", w.subject, err)
	}
	return nil
}
