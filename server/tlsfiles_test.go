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

// certify makes a certificate for clients, and for services on the loopback interface. An authority
// signs it, or it signs itself. It writes the certificate and its key to NAME.pem and NAME.key in dir.
func certify(t *testing.T, dir, name string, authority *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noErr(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: authority == nil, BasicConstraintsValid: true,
	}
	parent, signer := template, any(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	noErr(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	noErr(t, err)
	file := filepath.Join(dir, name)
	noErr(t, os.WriteFile(file+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	noErr(t, os.WriteFile(file+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	pair, err := tls.LoadX509KeyPair(file+".pem", file+".key")
	noErr(t, err)
	return &pair
}

// shown returns a request by a connection with a client's certificate, which was verified.
func shown(cert *x509.Certificate) *http.Request {
	r := asWho("")
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
	return r
}

func TestTLS_H6_CertificatesTellWhoAsks(t *testing.T) {
	file, _ := openAuth(t, `{"principals": [
		{"name": "shop", "certificates": ["uri:spiffe://prod/shop", "dns:shop.internal"], "rights": [{"verbs": ["acquire"], "prefix": "k"}]},
		{"name": "other", "certificates": ["cn:other", "email:other@example.org"], "rights": [{"verbs": ["acquire"], "prefix": "other/"}]}
	]}`)
	for _, row := range []struct {
		cert        x509.Certificate
		file, every string // the principal of the file, and of a service without one
	}{
		{x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "prod", Path: "/shop"}}}, "shop", "spiffe://prod/shop"},
		{x509.Certificate{DNSNames: []string{"x", "shop.internal"}}, "shop", "x"},
		{x509.Certificate{Subject: pkix.Name{CommonName: "other"}}, "other", "other"},
		{x509.Certificate{EmailAddresses: []string{"other@example.org"}}, "other", "other@example.org"},
		{x509.Certificate{Subject: pkix.Name{CommonName: "shop.internal"}}, "", "shop.internal"}, // a name of another kind
		{x509.Certificate{DNSNames: []string{"stranger"}}, "", "stranger"},
		{x509.Certificate{}, "", ""},
	} {
		r := shown(&row.cert)
		if p, err := file.Authenticate(r); name(p) != row.file || (err == nil) != (row.file != "") {
			t.Errorf("%+v is %q, %v; want %q", row.cert, name(p), err, row.file)
		}
		p, err := auth.AnyCertificate().Authenticate(r)
		if name(p) != row.every || (err == nil) != (row.every != "") {
			t.Errorf("without a file %+v is %q, %v; want %q", row.cert, name(p), err, row.every)
		}
		// The page shares its data between equal principals.
		if again, _ := auth.AnyCertificate().Authenticate(r); again != p {
			t.Errorf("%v and %v differ", p, again)
		}
		for _, verb := range []auth.Verb{auth.Acquire, auth.Read, auth.Break} {
			if p != nil && (!p.May(verb, "orders/1") || !p.May(verb, "")) {
				t.Errorf("%s may not %s", p.Name(), verb)
			}
		}
	}
	for _, a := range []auth.Authenticator{file, auth.AnyCertificate()} {
		if p, err := a.Authenticate(asWho("")); err == nil {
			t.Errorf("without a certificate: %s", p.Name())
		}
	}
}

func TestTLS_CertificatesAreAskedForAndReloaded(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	authority := certify(t, dir, "authority", nil)
	certify(t, dir, "service", authority)
	files, err := auth.OpenTLS(path("service.pem"), path("service.key"), path("authority.pem"))
	noErr(t, err)
	h := httptest.NewUnstartedServer(open(t, memdriver.New(), server.WithAuthenticator(auth.AnyCertificate())))
	h.TLS = files.Config()
	h.StartTLS()
	t.Cleanup(h.Close)
	roots := x509.NewCertPool()
	roots.AddCert(authority.Leaf)
	get := func(certs ...*tls.Certificate) (status int, serial string) {
		t.Helper()
		config := &tls.Config{RootCAs: roots}
		for _, c := range certs { // also one that the service does not ask for
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c, nil }
		}
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		res, err := (&http.Client{Transport: transport}).Get(h.URL + "/v1/locks/k")
		if err != nil {
			return 0, err.Error()
		}
		defer res.Body.Close()
		return res.StatusCode, res.TLS.PeerCertificates[0].SerialNumber.String()
	}
	other := certify(t, t.TempDir(), "authority", nil)
	for what, row := range map[string]struct {
		certs  []*tls.Certificate
		status int // 0: the connection is refused
	}{
		"no certificate":                     {nil, 401},
		"a certificate of the authority":     {[]*tls.Certificate{certify(t, dir, "client", authority)}, 200},
		"a certificate of another authority": {[]*tls.Certificate{certify(t, t.TempDir(), "client", other)}, 0},
	} {
		if status, text := get(row.certs...); status != row.status {
			t.Errorf("%s: %d %s, want %d", what, status, text, row.status)
		}
	}
	_, first := get()
	noErr(t, os.WriteFile(path("service.pem"), []byte("no certificate"), 0o600))
	err = files.Reload()
	if _, now := get(); !errors.Is(err, driver.ErrInvalid) || now != first {
		t.Errorf("after a wrong file: %v, and the certificate %s instead of %s", err, now, first)
	}
	certify(t, dir, "service", authority)
	err = files.Reload()
	if _, now := get(); err != nil || now == first {
		t.Errorf("after another file: %v, and the certificate %s", err, now)
	}
}

func TestTLS_FilesThatCannotBeUsedAreRefused(t *testing.T) {
	dir := t.TempDir()
	certify(t, dir, "service", nil)
	certify(t, dir, "stranger", nil)
	empty := writeFile(t, "empty.pem", "")
	cert, key, none := filepath.Join(dir, "service.pem"), filepath.Join(dir, "service.key"), filepath.Join(dir, "none")
	for name, files := range map[string][3]string{
		"no certificate":   {none, key, ""},
		"no key":           {cert, none, ""},
		"another's key":    {cert, filepath.Join(dir, "stranger.key"), ""},
		"empty":            {empty, key, ""},
		"no authority":     {cert, key, none},
		"authority, empty": {cert, key, empty},
	} {
		if _, err := auth.OpenTLS(files[0], files[1], files[2]); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
