package redisurl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

// Dial connects to a server of the URL, and authenticates the connection if the password is
// in a file. An error of TLS names the parameter that may help. The operation of all errors
// is "dial", which means that no command was sent.
func (c *Config) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return c.dial(ctx, addr, c.login)
}

// DialSentinel is Dial for a sentinel.
func (c *Config) DialSentinel(ctx context.Context, addr string) (net.Conn, error) {
	return c.dial(ctx, addr, c.sentinelLogin)
}

func (c *Config) dial(ctx context.Context, addr string, login *login) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout/2)
	defer cancel()
	nc, err := c.connect(ctx, addr)
	if err != nil || login == nil {
		return nc, err
	}
	if err := login.authenticate(ctx, nc); err != nil {
		_ = nc.Close()
		return nil, dialError(nc, nc.RemoteAddr().Network(), err)
	}
	return nc, nil
}

func (c *Config) connect(ctx context.Context, addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, c.Network, addr)
	if err != nil || c.TLS == nil {
		return nc, err
	}
	config := c.TLS.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	bare := false // the server requires a certificate, and the client has no certificate
	if config.GetClientCertificate == nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			bare = true
			return new(tls.Certificate), nil
		}
	}
	secure := tls.Client(nc, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, dialError(nc, "tls", withAdvice(err))
	}
	if bare {
		return &bareConn{Conn: secure}, nil
	}
	return secure, nil
}

func dialError(nc net.Conn, network string, err error) error {
	return &once{&net.OpError{Op: "dial", Net: network, Source: nc.LocalAddr(), Addr: nc.RemoteAddr(), Err: err}}
}

// once is an error that survives being unwrapped once, which go-redis does with errors of a
// greeting.
type once struct{ err *net.OpError }

func (o *once) Error() string { return o.err.Error() }
func (o *once) Unwrap() error { return o.err }

// withAdvice adds advice to an error of TLS.
func withAdvice(err error) error {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf("%w (name the file of its authority's certificate with ?ca=)", err)
	case errors.As(err, &host):
		return fmt.Errorf("%w (give the name in its certificate with ?server-name=)", err)
	case errors.As(err, &record), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer in TLS: %w (a server without TLS has a redis:// URL)", err)
	}
	return err
}

// bareConn is a connection without a client certificate, although the server has asked for
// one. Whether that is an error is only known after the first read, of the answer to the
// client library's greeting.
type bareConn struct {
	net.Conn
	heard atomic.Bool
}

func (c *bareConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(true)
	}
	return n, c.refused(err)
}

func (c *bareConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.refused(err)
}

func (c *bareConn) refused(err error) error {
	if err == nil || c.heard.Load() {
		return err
	}
	return dialError(c.Conn, "tls", fmt.Errorf("%w (the server wants a certificate of the client; name its files with ?cert= and ?key=)", err))
}
