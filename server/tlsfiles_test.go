package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = a.sign(template, "authority")
	return a
}

// path returns the path of a file of the authority.
func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// sign makes a certificate, and writes it and its key to NAME.pem and NAME.key.
func (a *authority) sign(template *x509.Certificate, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noErr(a.t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	noErr(a.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	noErr(a.t, err)
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", private)
	cert, err := x509.ParseCertificate(der)
	noErr(a.t, err)
	return cert, key
}

func (a *authority) write(name, kind string, der []byte) {
	noErr(a.t, os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// service makes the certificate of a service on the loopback interface.
func (a *authority) service() {
	a.sign(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, "service")
}

// client makes and returns a certificate with the given names.
func (a *authority) client(template *x509.Certificate) tls.Certificate {
	a.t.Helper()
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	a.sign(template, "client")
	pair, err := tls.LoadX509KeyPair(a.path("client.pem"), a.path("client.key"))
	noErr(a.t, err)
	return pair
}

// startTLS serves a store in memory with the service's certificate.
func (a *authority) startTLS(clients string, opts ...server.Option) (url string, files *auth.TLS) {
	a.t.Helper()
	a.service()
	files, err := auth.OpenTLS(a.path("service.pem"), a.path("service.key"), clients)
	noErr(a.t, err)
	s, err := server.New(memdriver.New(), opts...)
	noErr(a.t, err)
	h := httptest.NewUnstartedServer(s)
	h.TLS = files.Config()
	h.StartTLS()
	a.t.Cleanup(h.Close)
	return h.URL, files
}

// by returns a client that trusts the authority and shows the certificates, if any.
func (a *authority) by(certs ...tls.Certificate) *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs, MinVersion: tls.VersionTLS12}}
	a.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// status sends a request to url, and returns the status.
func status(t *testing.T, c *http.Client, url string) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/locks/k", nil)
	noErr(t, err)
	res, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

func TestTLS_H6_ClientCertificatesAreAskedForAndTellWhoAsks(t *testing.T) {
	a := newAuthority(t)
	file, _ := openAuth(t, `{"principals": [
		{"name": "shop", "certificates": ["uri:spiffe://prod/shop", "dns:shop.internal"], "rights": [{"verbs": ["acquire"], "prefix": "k"}]},
		{"name": "other", "certificates": ["cn:other", "email:other@example.org"], "rights": [{"verbs": ["acquire"], "prefix": "other/"}]}
	]}`)
	base, _ := a.startTLS(a.path("authority.pem"), server.WithAuthenticator(file))
	spiffe := &url.URL{Scheme: "spiffe", Host: "prod", Path: "/shop"}
	for _, row := range []struct {
		name   string
		client *http.Client
		status int // 0: the connection is refused
	}{
		{"no certificate", a.by(), 401},
		{"by URI", a.by(a.client(&x509.Certificate{URIs: []*url.URL{spiffe}})), 201},
		{"by DNS name", a.by(a.client(&x509.Certificate{DNSNames: []string{"x", "shop.internal"}})), 409},
		{"without the right", a.by(a.client(&x509.Certificate{Subject: pkix.Name{CommonName: "other"}})), 403},
		{"by email, without the right", a.by(a.client(&x509.Certificate{EmailAddresses: []string{"other@example.org"}})), 403},
		{"a name of another kind", a.by(a.client(&x509.Certificate{Subject: pkix.Name{CommonName: "shop.internal"}})), 401},
		{"unknown", a.by(a.client(&x509.Certificate{DNSNames: []string{"stranger"}})), 401},
		{"another authority's", a.by(newAuthority(t).client(&x509.Certificate{DNSNames: []string{"shop.internal"}})), 0},
	} {
		got, err := status(t, row.client, base)
		if got != row.status || (err == nil) != (row.status != 0) {
			t.Errorf("%s: %d, %v; want %d", row.name, got, err, row.status)
		}
	}
}

func TestTLS_EveryCertificateCountsWithoutAnAuthFile(t *testing.T) {
	a := newAuthority(t)
	base, _ := a.startTLS(a.path("authority.pem"), server.WithAuthenticator(auth.AnyCertificate()))
	for _, row := range []struct {
		client *http.Client
		status int
	}{
		{a.by(), 401},
		{a.by(a.client(&x509.Certificate{Subject: pkix.Name{CommonName: "anybody"}})), 201},
		{a.by(a.client(&x509.Certificate{})), 401},
	} {
		if got, err := status(t, row.client, base); got != row.status {
			t.Errorf("%d, %v; want %d", got, err, row.status)
		}
	}
}

// The page shares its data between equal principals, and makes it again for other principals.
func TestTLS_ClientsOfOneNameAreEqualWithoutAnAuthFile(t *testing.T) {
	as := func(name string) auth.Principal {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: name}}}}}
		p, err := auth.AnyCertificate().Authenticate(r)
		noErr(t, err)
		return p
	}
	a, b := as("a"), as("b")
	if a != as("a") || a == b {
		t.Errorf("%v and %v", a, b)
	}
	for _, verb := range []auth.Verb{auth.Acquire, auth.Read, auth.Break} {
		if !a.May(verb, "orders/1") || !a.May(verb, "") {
			t.Errorf("%s may not %s", a.Name(), verb)
		}
	}
}

func TestTLS_ReloadTakesANewCertificateAndKeepsTheOldOneIfItIsWrong(t *testing.T) {
	a := newAuthority(t)
	base, files := a.startTLS("")
	serial := func() *big.Int {
		t.Helper()
		c := a.by()
		res, err := c.Get(base + "/health")
		noErr(t, err)
		defer res.Body.Close()
		return res.TLS.PeerCertificates[0].SerialNumber
	}
	first := serial()
	noErr(a.t, os.WriteFile(a.path("service.pem"), []byte("no certificate"), 0o600))
	if err := files.Reload(); !errors.Is(err, driver.ErrInvalid) || serial().Cmp(first) != 0 {
		t.Errorf("after a wrong file: %v", err)
	}
	a.service()
	if err := files.Reload(); err != nil || serial().Cmp(first) == 0 {
		t.Errorf("after a new one: %v", err)
	}
}

func TestTLS_FilesThatCannotBeUsedAreRefused(t *testing.T) {
	a := newAuthority(t)
	a.service()
	a.sign(&x509.Certificate{}, "stranger")
	cert, key := a.path("service.pem"), a.path("service.key")
	empty := writeFile(t, "empty.pem", "")
	for name, files := range map[string][3]string{
		"no certificate":   {a.path("none"), key, ""},
		"no key":           {cert, a.path("none"), ""},
		"another's key":    {cert, a.path("stranger.key"), ""},
		"empty":            {empty, key, ""},
		"no authority":     {cert, key, a.path("none")},
		"authority, empty": {cert, key, empty},
	} {
		if _, err := auth.OpenTLS(files[0], files[1], files[2]); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
