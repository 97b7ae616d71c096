// Package urlquery reads the options in the query of a store's URL.
package urlquery

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Query reads parameters, each once, and remembers the first that is wrong.
// Their names may also be written with _ instead of -.
type Query struct {
	values url.Values
	err    error
}

// New returns a reader of the values.
func New(values url.Values) Query {
	q := Query{values: make(url.Values, len(values))}
	for name, value := range values {
		q.values[spelled(name)] = append(q.values[spelled(name)], value...)
	}
	return q
}

func spelled(name string) string { return strings.ReplaceAll(name, "_", "-") }

// Of returns a reader of a URL's parameters. It stores an error if the query is malformed, or if
// a fragment hides a part of it, so that no parameter is ignored.
func Of(u *url.URL) Query {
	values, err := url.ParseQuery(u.RawQuery)
	q := New(values)
	switch {
	case err != nil: // which may hold a password
		q.fail(errors.New("the text after the question mark is not of the form name=value&name=value"))
	case u.Fragment != "":
		q.fail(errors.New("a # is written as %23"))
	}
	return q
}

// Has reports whether a parameter is given that has not been read.
func (q *Query) Has(name string) bool {
	return q.values.Has(spelled(name))
}

// Text returns a parameter as it is.
func (q *Query) Text(name, otherwise string) string {
	if !q.Has(name) {
		return otherwise
	}
	values := q.values[spelled(name)]
	q.values.Del(spelled(name))
	if len(values) > 1 {
		q.fail(fmt.Errorf("%s is given twice", name))
	}
	return values[0]
}

// maxSecret bounds the file of a secret.
const maxSecret = 64 << 10

// FirstLine returns the first line of a file that holds a secret, without the space
// around it. An error contains the name of the file but not its content.
func FirstLine(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecret))
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return line, nil
}

// Secret returns a function that reads the first line of a file with a secret. It reads the file
// at each call, since secrets are rotated. A file that can be read only once, such as a pipe of a
// shell, is read now.
func Secret(path string) (read func() (string, error), err error) {
	text, err := FirstLine(path)
	if err != nil {
		return nil, err
	}
	if isPipe(path) {
		return func() (string, error) { return text, nil }, nil
	}
	return func() (string, error) { return FirstLine(path) }, nil
}

func isPipe(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular()
}

// Bool returns a parameter that is false by default.
func (q *Query) Bool(name string) bool {
	text := q.Text(name, "false")
	v, err := strconv.ParseBool(text)
	if err != nil {
		q.fail(fmt.Errorf("%s=%q: want true or false", name, text))
	}
	return v
}

// Number returns a number that is 0 by default, and not negative.
func (q *Query) Number(name string) int {
	text := q.Text(name, "0")
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		q.fail(fmt.Errorf("%s=%q: want a number from 0", name, text))
	}
	return n
}

// Duration returns a duration.
func (q *Query) Duration(name string, otherwise time.Duration) time.Duration {
	text := q.Text(name, otherwise.String())
	d, err := time.ParseDuration(text)
	if err != nil {
		q.fail(fmt.Errorf("%s=%q: want a duration such as 500ms", name, text))
	}
	return d
}

// TLS reads ca, cert, key, server-name and skip-verify into the configuration.
// Without a configuration they are refused: they need a scheme such as the given one.
func (q *Query) TLS(c *tls.Config, scheme string) error {
	ca, cert, key := q.Text("ca", ""), q.Text("cert", ""), q.Text("key", "")
	name, skip := q.Text("server-name", ""), q.Bool("skip-verify")
	if c == nil {
		if ca+cert+key+name != "" || skip {
			return fmt.Errorf("ca, cert, key, server-name and skip-verify go with %s", scheme)
		}
		return nil
	}
	c.ServerName, c.InsecureSkipVerify = name, skip //nolint:gosec // asked for by name
	if err := trust(c, ca); err != nil {
		return err
	}
	if cert == "" && key == "" {
		return nil
	}
	if cert == "" || key == "" {
		return errors.New("cert and key go together: the files of a certificate and of its key")
	}
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("certificate %q and key %q: %w", cert, key, err)
		}
		return &pair, nil
	}
	c.GetClientCertificate = load // for each connection: certificates are replaced
	pair, err := load(nil)
	if isPipe(cert) || isPipe(key) { // as in Secret
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	return err
}

// trust adds the certificates of a file to the certificates of the system.
func trust(c *tls.Config, file string) error {
	if file == "" {
		return nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	if c.RootCAs, err = x509.SystemCertPool(); err != nil {
		c.RootCAs = x509.NewCertPool()
	}
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s holds no certificate", file)
	}
	return nil
}

func (q *Query) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

// Err returns the first error of the parameters that were read.
func (q *Query) Err() error { return q.err }

// Rest returns the first error, or an error that names a parameter that was not read.
func (q *Query) Rest() error {
	for name := range q.values {
		q.fail(fmt.Errorf("unknown parameter %q", name))
	}
	return q.err
}
