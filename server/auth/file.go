package auth

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// File is an [Authenticator] that reads a file of principals: their bearer tokens or client
// certificates, and their rights. It is safe
// for concurrent use. The file is JSON, of at most 1 MiB:
//
//	{
//	  "principals": [
//	    {
//	      "name": "shop",
//	      "tokens": ["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
//	      "certificates": ["dns:shop.internal"],
//	      "rights": [
//	        {"verbs": ["acquire", "read"], "prefix": "orders/"}
//	      ]
//	    }
//	  ]
//	}
//
// A token is named by the SHA-256 of its text, so that the file holds no
// secrets; it should be random, of 128 bits or more. Several tokens serve to
// replace one without a pause. A certificate, which has to be signed by the
// authority that [OpenTLS] was given, is named by one of its subject's names:
// dns:, uri: (a SPIFFE id, for instance), email: or cn:. A right is for locks
// with names that begin with the prefix, which has to be given; an empty one is for
// all locks. The verbs are acquire, read and break.
type File struct {
	path string
	now  atomic.Pointer[roster]
}

// Bounds of the file.
const (
	maxFile       = 1 << 20
	maxPrincipals = 1000
	maxPrincipal  = 128 // bytes of a name
)

// OpenFile reads the file at path.
func OpenFile(path string) (*File, error) {
	f := &File{path: path}
	return f, f.Reload()
}

// Reload reads the file again. If that fails, the old principals stay in force.
func (f *File) Reload() error { return apply(f.Read) }

// Read reads the file again, and returns a function that puts it in force. It is
// [File.Reload] in two steps, so that several files can be checked before any is put in force.
func (f *File) Read() (enforce func(), err error) {
	text, err := readFile(f.path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("auth: authentication file: %w", err)
	}
	known, err := parseRoster(text)
	if err != nil {
		return nil, fmt.Errorf("auth: authentication file %s: %w", f.path, err)
	}
	return func() { f.now.Store(known) }, nil
}

// apply puts the result of read in force.
func apply(read func() (func(), error)) error {
	enforce, err := read()
	if err == nil {
		enforce()
	}
	return err
}

// readFile reads a file of at most most bytes.
func readFile(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes: %w", path, most, driver.ErrInvalid)
	}
	return text, err
}

// Authenticate implements [Authenticator]. A bearer token counts before a
// certificate.
func (f *File) Authenticate(r *http.Request) (Principal, error) {
	known := f.now.Load()
	if len(r.Header.Values("Authorization")) == 0 {
		return known.byCertificate(r)
	}
	token, err := bearer(r.Header)
	if err != nil {
		return nil, err
	}
	return known.byToken(token)
}

// Reasons why a request has no principal, for the log.
var (
	errNoCredentials = errors.New("no credentials")
	errNotBearer     = errors.New("not one bearer token")
	errToken         = errors.New("unknown token")
	errCertificate   = errors.New("unknown certificate")
)

// maxToken bounds the tokens that are hashed.
const maxToken = 4096

// bearer returns the token of a request: RFC 6750, section 2.1.
func bearer(h http.Header) (string, error) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", errNotBearer
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.TrimLeft(token, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken {
		return "", errNotBearer
	}
	return token, nil
}

// roster is the content of the file: all principals.
type roster struct {
	tokens []tokenOf
	names  map[string]*principal // by the name of a certificate
}

type tokenOf struct {
	hash [sha256.Size]byte
	of   *principal
}

// byToken finds the principal of a token. It compares the hash with all hashes in the file, so
// that the time does not show how much of the token was right.
func (k *roster) byToken(token string) (Principal, error) {
	hash := sha256.Sum256([]byte(token))
	var found *principal
	for i := range k.tokens {
		if subtle.ConstantTimeCompare(hash[:], k.tokens[i].hash[:]) == 1 {
			found = k.tokens[i].of
		}
	}
	if found == nil {
		return nil, errToken
	}
	return found, nil
}

// byCertificate looks a client up by the names in a certificate that was
// verified.
func (k *roster) byCertificate(r *http.Request) (Principal, error) {
	cert := verified(r)
	if cert == nil {
		return nil, errNoCredentials
	}
	for _, name := range certificateNames(cert) {
		if p := k.names[name]; p != nil {
			return p, nil
		}
	}
	return nil, errCertificate
}

// verified returns the client's verified certificate, or nil.
func verified(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return r.TLS.VerifiedChains[0][0]
}

// certificateNames returns the names of the subject, each with its kind.
func certificateNames(cert *x509.Certificate) []string {
	var names []string
	for _, uri := range cert.URIs {
		names = append(names, "uri:"+uri.String())
	}
	for _, name := range cert.DNSNames {
		names = append(names, "dns:"+name)
	}
	for _, name := range cert.EmailAddresses {
		names = append(names, "email:"+name)
	}
	if cn := cert.Subject.CommonName; cn != "" {
		names = append(names, "cn:"+cn)
	}
	return names
}

// principal is a [Principal] of the file.
type principal struct {
	name   string
	rights []right
}

type right struct {
	verbs  []Verb
	prefix string
}

func (p *principal) Name() string { return p.name }

// May compares the beginning of the name. For a listing that is enough: all of its names
// begin with the prefix.
func (p *principal) May(verb Verb, name string) bool {
	return slices.ContainsFunc(p.rights, func(r right) bool {
		return slices.Contains(r.verbs, verb) && strings.HasPrefix(name, r.prefix)
	})
}

// authText is the file's JSON.
type authText struct {
	Principals []struct {
		Name         string   `json:"name"`
		Tokens       []string `json:"tokens"`
		Certificates []string `json:"certificates"`
		Rights       []struct {
			Verbs  []Verb  `json:"verbs"`
			Prefix *string `json:"prefix"`
		} `json:"rights"`
	} `json:"principals"`
}

// parseRoster reads the file's text. It rejects unknown fields: a right that is misunderstood is worse
// than a missing one.
func parseRoster(text []byte) (*roster, error) {
	var file authText
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("more after the JSON: %w", driver.ErrInvalid)
	}
	if err := onceEach(json.NewDecoder(bytes.NewReader(text))); err != nil {
		return nil, err
	}
	if n := len(file.Principals); n == 0 || n > maxPrincipals {
		return nil, fmt.Errorf("%d principals, not 1 to %d: %w", n, maxPrincipals, driver.ErrInvalid)
	}
	known := &roster{names: make(map[string]*principal)}
	seen := make(map[string]bool)
	for i, text := range file.Principals {
		p := &principal{name: text.Name}
		err := cmp.Or(check.Text("name", p.name, 1, maxPrincipal), once(seen, "name", p.name))
		for _, r := range text.Rights {
			err = cmp.Or(err, p.grant(r.Verbs, r.Prefix))
		}
		for _, token := range text.Tokens {
			err = cmp.Or(err, once(seen, "token", strings.ToLower(token)), known.addToken(token, p))
		}
		for _, name := range text.Certificates {
			err = cmp.Or(err, once(seen, "certificate", name), known.addName(name, p))
		}
		if err == nil && (len(text.Tokens)+len(text.Certificates) == 0 || len(p.rights) == 0) {
			err = check.Errorf("no tokens and certificates, or no rights")
		}
		if err != nil {
			return nil, fmt.Errorf("principal %d, %q: %w", i+1, oneline.Shorten(p.name), err)
		}
	}
	return known, nil
}

// onceEach rejects a value in which an object has a field twice, because the decoder would use
// the last. The decoder ignores the case of field names, so this does too.
func onceEach(d *json.Decoder) error {
	open, err := d.Token()
	if err != nil || open != json.Delim('{') && open != json.Delim('[') {
		return err
	}
	seen := make(map[string]bool)
	for err == nil && d.More() {
		if open == json.Delim('{') {
			var field json.Token
			field, err = d.Token()
			name, _ := field.(string)
			err = cmp.Or(err, once(seen, "field", strings.ToLower(name)))
		}
		err = cmp.Or(err, onceEach(d))
	}
	if err == nil {
		_, err = d.Token() // the end of it
	}
	return err
}

// once rejects a text that was seen before.
func once(seen map[string]bool, what, text string) error {
	key := what + " " + text
	if seen[key] {
		return check.Errorf("a %s is there twice", what)
	}
	seen[key] = true
	return nil
}

func (p *principal) grant(verbs []Verb, prefix *string) error {
	if prefix == nil {
		return check.Errorf("a right without a prefix")
	}
	if len(verbs) == 0 {
		return check.Errorf("a right without verbs")
	}
	for _, verb := range verbs {
		if !slices.Contains([]Verb{Acquire, Read, Break}, verb) {
			return check.Errorf("verb %q is none of %q, %q, %q", oneline.Shorten(string(verb)), Acquire, Read, Break)
		}
	}
	p.rights = append(p.rights, right{verbs, *prefix})
	return check.Text("prefix", *prefix, 0, check.MaxKey)
}

func (k *roster) addToken(text string, p *principal) error {
	digits, ok := strings.CutPrefix(text, "sha256:")
	hash, err := hex.DecodeString(digits)
	if !ok || err != nil || len(hash) != sha256.Size {
		return check.Errorf("a token is not sha256: and 64 hexadecimal digits") // it may be the token itself
	}
	k.tokens = append(k.tokens, tokenOf{[sha256.Size]byte(hash), p})
	return nil
}

func (k *roster) addName(name string, p *principal) error {
	kind, rest, _ := strings.Cut(name, ":")
	if !slices.Contains([]string{"uri", "dns", "email", "cn"}, kind) || rest == "" {
		return check.Errorf("certificate %q is not uri:, dns:, email: or cn: and a name", oneline.Shorten(name))
	}
	k.names[name] = p
	return nil
}
