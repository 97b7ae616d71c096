package redisdriver

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/interrupt"
)

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer makes the connections of another dialer interruptible. One that
// cannot be had becomes a connection that fails at its first use: the pool
// would count and print the failures of a dialer, and after some stop asking.
func (c *adapter) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if interrupt.Again(ctx) {
			// Otherwise go-redis would itself subscribe again, at a server that may hang.
			return nil, errors.New("the subscription is lost")
		}
		nc, err := dial(ctx, network, addr)
		if err != nil {
			return &noConn{err: &dialError{&dialError{err}}}, nil
		}
		if addr == behindSentinels {
			c.conns.KeepOnly(nc.RemoteAddr()) // older connections may lead to its predecessor
			c.named.Store(nc.RemoteAddr().String())
		}
		return c.conns.Add(ctx, nc), nil
	}
}

// greeted returns the hook for the end of a greeting. It calls the application's hook,
// next.
func greeted(conns *interrupt.Conns, next func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, nc *redis.Conn) error {
		if next != nil {
			if err := next(ctx, nc); err != nil {
				return err
			}
		}
		conns.Greeted(ctx)
		return nil
	}
}

// noConn is a connection that could not be had.
type noConn struct {
	net.Conn // nil
	err      error
}

func (c *noConn) Read([]byte) (int, error)         { return 0, c.err }
func (c *noConn) Write([]byte) (int, error)        { return 0, c.err }
func (c *noConn) Close() error                     { return nil }
func (c *noConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *noConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *noConn) SetDeadline(time.Time) error      { return nil }
func (c *noConn) SetReadDeadline(time.Time) error  { return nil }
func (c *noConn) SetWriteDeadline(time.Time) error { return nil }

// dialError is why there is no connection. The pool unwraps an error once, so
// there are two of them, one in the other.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }
