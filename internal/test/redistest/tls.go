package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/address"
)

// Certificates are the files of a certificate authority for the test, and of the
// certificates that it signed for servers on loopback and for clients.
type Certificates struct {
	CA, ServerCert, ServerKey, ClientCert, ClientKey string

	client *tls.Config
}

// StartTLS is [Start] for a server that accepts only TLS. If clients is set, every client
// needs a certificate.
func StartTLS(tb testing.TB, clients bool, args ...string) *Server {
	tb.Helper()
	c := newCertificates(tb)
	auth := "no"
	if clients {
		auth = "yes"
	}
	args = append(c.arguments(auth), args...)
	return start(tb, &Server{certs: c}, append(slices.Clone(defaults), args...))
}

func (c *Certificates) arguments(auth string) []string {
	return []string{
		"--tls-auth-clients", auth, "--tls-replication", "yes", "--tls-cluster", "yes",
		"--tls-ca-cert-file", c.CA, "--tls-cert-file", c.ServerCert, "--tls-key-file", c.ServerKey,
	}
}

// StartSentinelTLS starts a sentinel that watches a server from [StartTLS], with
// the certificates of that server. It has no replica.
func StartSentinelTLS(tb testing.TB, primary *Server) *Server {
	tb.Helper()
	s := &Server{config: sentinelConfig(primary, 1), certs: primary.certs}
	return startTiltless(tb, s, primary.certs.arguments("no")...)
}

// Certificates returns the certificates of a server from [StartTLS].
func (s *Server) Certificates() *Certificates { return s.certs }

func newCertificates(tb testing.TB) *Certificates {
	tb.Helper()
	dir := tb.TempDir()
	must := func(err error) {
		if err != nil {
			tb.Fatalf("redistest: certificates: %v", err)
		}
	}
	file := func(name, kind string, der []byte) string {
		return write(tb, dir, name, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	serial := int64(0)
	sign := func(name string, usage x509.ExtKeyUsage, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		serial++
		template := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{usage}, BasicConstraintsValid: true,
			IPAddresses: address.IPs(), DNSNames: []string{"localhost"},
		}
		if parent == nil {
			template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
			parent, by = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
		must(err)
		cert, err := x509.ParseCertificate(der)
		must(err)
		return cert, key
	}
	pair := func(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) (string, string) {
		der, err := x509.MarshalECPrivateKey(key)
		must(err)
		return file(name+".crt", "CERTIFICATE", cert.Raw), file(name+".key", "EC PRIVATE KEY", der)
	}

	ca, caKey := sign("test authority", 0, nil, nil)
	server, serverKey := sign("server", x509.ExtKeyUsageServerAuth, ca, caKey)
	client, clientKey := sign("client", x509.ExtKeyUsageClientAuth, ca, caKey)
	c := &Certificates{CA: file("ca.crt", "CERTIFICATE", ca.Raw)}
	c.ServerCert, c.ServerKey = pair("server", server, serverKey)
	c.ClientCert, c.ClientKey = pair("client", client, clientKey)

	roots := x509.NewCertPool()
	roots.AddCert(ca)
	c.client = &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: roots,
		Certificates: []tls.Certificate{{Certificate: [][]byte{client.Raw}, PrivateKey: clientKey}},
	}
	return c
}
