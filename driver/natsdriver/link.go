package natsdriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leasehold-go/leasehold/internal/timing"
)

// link is the connection of a table.
type link struct {
	timeout time.Duration
	dial    func() (*nats.Conn, error) // takes at most the timeout; nil if the connection is the user's
	turn    chan struct{}              // holds one element while nc is in use
	nc      *nats.Conn
	closed  bool
}

func newLink(timeout time.Duration, nc *nats.Conn, dial func() (*nats.Conn, error)) *link {
	return &link{timeout: timeout, dial: dial, turn: make(chan struct{}, 1), nc: nc}
}

var (
	errLost   = errors.New("the connection is lost")
	errClosed = errors.New("the store is closed")
	errSilent = errors.New("no server answers: JetStream is not enabled there, or the bucket has no leader for now")
)

// conn returns the connection. The first call makes it, and so does a call after it was
// closed, as it is if the server refuses its credentials twice.
func (l *link) conn(ctx context.Context) (nc *nats.Conn, err error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("not connected yet: %w", context.Cause(ctx))
	}
	if l.closed {
		return nil, errClosed
	}
	if l.dial == nil && l.nc.IsClosed() {
		return nil, permanent(errors.New("the connection that was given to New is closed"))
	}
	if l.dial != nil && (l.nc == nil || l.nc.IsClosed()) {
		if nc, err = l.dial(); err != nil {
			return nil, err
		}
		l.nc = nc
	}
	return l.nc, nil
}

// close ends the connection if it is not the user's.
func (l *link) close() {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if l.closed = true; l.nc != nil && l.dial != nil {
		l.nc.Close()
	}
}

// ask sends a request once, and returns its answer. The error matches [driver.ErrUnavailable]
// only if the request was not sent, or the connected server did not route it: the user may not
// publish it, or it has no subscriber. The leader of a stream is the subscriber of its subjects.
func (l *link) ask(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.timeout, fmt.Errorf("no answer within %v: %w", l.timeout, context.DeadlineExceeded))
	defer cancel()
	nc, err := l.conn(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	w := watch{nc: nc, subject: msg.Subject, reconnects: nc.Stats().Reconnects, last: nc.LastError()}
	if err = w.over(); ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, unavailable(err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go w.run(ctx, stop)
	answer, err := nc.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, unavailable(errSilent)
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, unavailable(fmt.Errorf("the record has %d bytes, so the lock has too many waiters, or too many labels; "+
			"raise max_payload of the servers, which is %d: %w", len(msg.Data), nc.MaxPayload(), err))
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrHeadersNotSupported):
		return nil, unavailable(err)
	case errors.Is(err, os.ErrDeadlineExceeded): // a part of the request was sent, so no other request may follow
		_ = nc.ForceReconnect()
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
		if last := nc.LastError(); errors.Is(err, context.DeadlineExceeded) && errors.Is(last, nats.ErrPermissionViolation) {
			err = fmt.Errorf("%w; the last error of the connection: %v", err, last) //nolint:errorlint // perhaps of another request
		}
	}
	if errors.Is(err, nats.ErrPermissionViolation) {
		return nil, permanent(err)
	}
	return answer, err
}

// watch ends a request when its answer can no longer arrive. NATS does not report that to the request.
type watch struct {
	nc         *nats.Conn
	subject    string
	reconnects uint64 // of the connection before the request
	last       error  // likewise
}

// glance is how often a watch looks.
const glance = 20 * time.Millisecond

func (w *watch) run(ctx context.Context, stop context.CancelCauseFunc) {
	for timing.Sleep(ctx, glance) {
		if err := w.over(); err != nil {
			stop(err)
		}
	}
}

// over returns the reason why no answer can come: the connection was lost, or the server has refused
// to route the request. The text of that refusal has the subject.
func (w *watch) over() error {
	if w.nc.Status() != nats.CONNECTED || w.nc.Stats().Reconnects != w.reconnects {
		return errLost
	}
	err := w.nc.LastError()
	isNew := err != w.last //nolint:errorlint // another refusal has the same text
	if isNew && errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+w.subject+`"`) {
		return fmt.Errorf("the user lacks a right: allow it to publish to %s: %w", w.subject, err)
	}
	return nil
}
