package rueidisdriver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// connectAttempt is an attempt to connect that several calls wait for.
type connectAttempt struct {
	done chan struct{} // closed when client or err is set
	// client is the result.
	client rueidis.Client
	err    error
}

// connectedClient returns the client, and connects if there is none yet. rueidis connects
// when a client is made, and has no context for it.
func (s *adapter) connectedClient(ctx context.Context) (rueidis.Client, error) {
	s.mu.Lock()
	if s.client != nil || s.closed {
		defer s.mu.Unlock()
		if s.closed {
			return nil, redisroom.ErrClosed
		}
		return s.client, nil
	}
	c := s.attempt()
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.client, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: not connected yet: %w", driver.ErrUnavailable, context.Cause(ctx))
	}
}

// attempt returns the attempt under way, or begins one. The caller holds mu.
func (s *adapter) attempt() *connectAttempt {
	if s.connecting == nil {
		c := &connectAttempt{done: make(chan struct{})}
		s.connecting = c
		s.work.Go(func() { s.connect(c) })
	}
	return s.connecting
}

func (s *adapter) Connect(int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil && !s.closed && s.attempts.Due() {
		s.attempt()
	}
}

func (s *adapter) connect(c *connectAttempt) {
	client, err := rueidis.NewClient(s.option)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(c.done)
	s.connecting = nil
	switch {
	case err != nil:
		c.err = s.connectError(err)
	case s.closed:
		client.Close()
		c.err = redisroom.ErrClosed
	default:
		s.client, c.client = client, client
	}
}

// connectError returns the error of a request that had no connection.
func (s *adapter) connectError(err error) error {
	var reply *rueidis.RedisError
	if errors.As(err, &reply) {
		err = redisroom.ReplyError(reply.Error())
	}
	named, _ := s.named.Load().(string)
	return redisroom.ConnectError(redisroom.PrimaryError(named, err))
}

// connectSoon is connectedClient with the timeout of a request.
func (s *adapter) connectSoon(ctx context.Context) (rueidis.Client, error) {
	try := s.begin(ctx)
	defer try.End()
	return s.connectedClient(try)
}

// dialer makes connections for opt that a call can interrupt.
func (s *adapter) dialer(opt rueidis.ClientOption) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (nc net.Conn, err error) {
		switch {
		case opt.DialCtxFn != nil:
			nc, err = opt.DialCtxFn(ctx, addr, d, config)
		case opt.DialFn != nil:
			nc, err = opt.DialFn(addr, d, config)
		case config != nil:
			nc, err = (&tls.Dialer{NetDialer: d, Config: config}).DialContext(ctx, "tcp", addr)
		default:
			nc, err = d.DialContext(ctx, "tcp", addr)
		}
		if opt.Sentinel.MasterSet != "" && d.Control == nil {
			s.named.Store(addr)
		}
		if err != nil {
			return nil, err
		}
		return s.conns.Add(ctx, nc), nil
	}
}

// ofSentinel marks the dialer of sentinels, to which rueidis connects by the same function
// as to the primary. It does not change the connection.
func ofSentinel(string, string, syscall.RawConn) error { return nil }
