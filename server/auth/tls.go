package auth

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// TLS is a certificate with its key, and the authority of the clients'
// certificates if there is one, from files that may be replaced while the
// service runs. It is safe for concurrent use.
type TLS struct {
	cert, key, clients string
	now                atomic.Pointer[tls.Config]
}

// maxPEM bounds the files.
const maxPEM = 4 << 20

// OpenTLS reads PEM files: the certificate, followed by any intermediate certificates; its
// private key; and the authorities that sign clients' certificates, "" for no authority.
//
// A client without a certificate may connect. It then needs a bearer token, which the
// [Authenticator] checks. A client with a wrong certificate cannot connect.
func OpenTLS(cert, key, clients string) (*TLS, error) {
	t := &TLS{cert: cert, key: key, clients: clients}
	return t, t.Reload()
}

// Reload reads the files again, for later connections. If that fails, the files
// read before stay in use.
func (t *TLS) Reload() error { return apply(t.Read) }

// Read reads the files again, and returns a function that puts them in force: [TLS.Reload] in two steps.
func (t *TLS) Read() (enforce func(), err error) {
	cert, err := readFile(t.cert, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("auth: certificate: %w", err)
	}
	key, err := readFile(t.key, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("auth: key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("auth: certificate %s with key %s: %w: %w", t.cert, t.key, driver.ErrInvalid, err)
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		NextProtos: []string{"h2", "http/1.1"},
	}
	if t.clients != "" {
		authorities, err := readFile(t.clients, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("auth: clients' authority: %w", err)
		}
		cfg.ClientAuth, cfg.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
		if !cfg.ClientCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("auth: clients' authority %s has no certificate: %w", t.clients, driver.ErrInvalid)
		}
	}
	return func() { t.now.Store(cfg) }, nil
}

// Config returns the configuration of a listener. It follows every Reload.
func (t *TLS) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.now.Load(), nil },
	}
}

// AnyCertificate accepts every client whose certificate is signed by the clients' authority,
// with all rights. It is for a service without a [File].
func AnyCertificate() Authenticator { return anyCertificate{} }

type anyCertificate struct{}

func (anyCertificate) Authenticate(r *http.Request) (Principal, error) {
	cert := verified(r)
	if cert == nil {
		return nil, errNoCredentials
	}
	names := certificateNames(cert)
	if len(names) == 0 {
		return nil, errors.New("a certificate without names")
	}
	_, name, _ := strings.Cut(names[0], ":")
	return certified(cmp.Or(oneline.Shorten(name), "client")), nil
}

// certified is the name of a client with all rights.
type certified string

func (c certified) Name() string { return string(c) }

func (certified) May(Verb, string) bool { return true }
