package httpdriver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/leasehold-go/leasehold/driver"
)

// journey records how far a request has come. A request that was never given a connection
// certainly had no effect.
type journey struct {
	began     atomic.Bool // a connection was asked for
	connected atomic.Bool // and there was one, perhaps more than once
	reused    atomic.Bool // which had been used before
}

// watch returns a context whose request reports its progress to j.
func (j *journey) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { j.began.Store(true) },
		GotConn: func(info httptrace.GotConnInfo) {
			j.connected.Store(true)
			j.reused.Store(info.Reused)
		},
	})
}

// failed returns the error of a request that was not answered.
func (j *journey) failed(err error) error {
	if reason := misled(err); reason != nil {
		return fmt.Errorf("%w: %w: %w", driver.ErrPermanent, reason, err)
	}
	var op *net.OpError
	dial := errors.As(err, &op) && op.Op == "dial" // for a transport without traces
	if !j.connected.Load() && (j.began.Load() || dial) {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}

// Errors of a connection that is encrypted on one side only, or whose other side is the
// wrong one. They do not pass with time.
var (
	errNoTLS        = errors.New("the service does not speak TLS at this port; its URL begins with http://")
	errWantsTLS     = fmt.Errorf("%w: the service speaks TLS at this port; its URL begins with https://", driver.ErrPermanent)
	errUnknownCA    = errors.New("the certificate of the service is signed by an authority that is not trusted; ?ca=FILE names one")
	errWrongName    = errors.New("the certificate of the service is for another name; set it by ?server-name=NAME")
	errCertificate  = errors.New("the certificate of the service is not valid")
	errOurs         = errors.New("the service refuses our certificate, or requires one; ?cert=FILE&key=FILE gives it")
	alertOfOldTLS   = `malformed HTTP response "\x15\x03`
	refusalsByText  = []string{"HTTP request to an HTTPS server", "plain HTTP request was sent to HTTPS port", "speaking plain HTTP to an SSL-enabled server"}
	certificateText = "certificate" // all alerts about one have it, and are sent before any request is read
)

// misled returns the permanent error of the connection, or nil.
func misled(err error) error {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   *tls.CertificateVerificationError
		op        *net.OpError
	)
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return errNoTLS
	case errors.As(err, &authority):
		return errUnknownCA
	case errors.As(err, &name):
		return errWrongName
	case errors.As(err, &invalid):
		return errCertificate
	case errors.As(err, &op) && op.Op == "remote error" && strings.Contains(op.Err.Error(), certificateText):
		return errOurs
	case strings.Contains(err.Error(), alertOfOldTLS):
		return errWantsTLS
	}
	return nil
}

// wantsTLS reports whether a server's answer means that it requires TLS.
func wantsTLS(text string) bool {
	return slices.ContainsFunc(refusalsByText, func(refusal string) bool { return strings.Contains(text, refusal) })
}
