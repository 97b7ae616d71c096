package httpdriver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/storeurl"
	"github.com/leasehold-go/leasehold/internal/urlquery"
)

// Open returns a driver for the service at a URL:
//
//	https://locks.example.com                      a service
//	https://:token@locks.example.com/path          a token, and a path
//	https://locks.example.com?token-file=/etc/leasehold/token
//
// Parameters are timeout=5s; token-file, a file whose first line is the token, which is
// read for each request; and with
// https:// ca, server-name, skip-verify=true and, for a client certificate, cert and key.
// ca, cert and key are PEM files. Options override the URL; [WithClient] replaces all
// TLS settings of the URL.
//
// Open sends no request: if the service is down, the first request fails. The error matches
// [driver.ErrInvalid] if the URL or an option is wrong; a token never appears in it.
func Open(rawURL string, opts ...Option) (*Driver, error) {
	u, stated, err := parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("httpdriver: %w", storeurl.Invalid(rawURL, err))
	}
	cfg, err := newConfig(append(stated, opts...))
	if err != nil {
		return nil, fmt.Errorf("httpdriver: %w", err)
	}
	u.User, u.RawQuery = nil, ""
	d := &Driver{base: strings.TrimSuffix(u.String(), "/") + "/v1", cfg: cfg}
	d.client.Store(cfg.client)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d, nil
}

// parse returns the parts of a URL and the options that it states.
func parse(rawURL string) (u *url.URL, opts []Option, err error) {
	if err := storeurl.Check(rawURL); err != nil {
		return nil, nil, err
	}
	u, err = url.Parse(rawURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Host[0] != '[' && strings.Count(u.Host, ":") > 1 {
		return nil, nil, errors.New("not of the form http://host/path; " + storeurl.Encode) // err may quote a token
	}
	opts, err = options(u)
	return u, opts, err
}

// options returns the options that the URL's parameters state.
func options(u *url.URL) (opts []Option, err error) {
	q := urlquery.Of(u)
	var config *tls.Config
	if u.Scheme == "https" {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	timeout := q.Duration("timeout", DefaultTimeout)
	file := q.Text("token-file", "")
	token, err := tokenOf(u, file)
	if err := oneline.Join(err, q.TLS(config, "https://"), q.Rest()); err != nil {
		return nil, err
	}
	opts = append(append(opts, WithTimeout(timeout)), token...)
	if config != nil {
		opts = append(opts, withFresh(func() *http.Client {
			client := newClient()
			client.Transport.(*http.Transport).TLSClientConfig = config.Clone()
			return client
		}))
	}
	return opts, nil
}

// tokenOf returns the option of the token that the URL has, or that is the first line of a
// file, which is read for each request.
func tokenOf(u *url.URL, file string) ([]Option, error) {
	password, ok := u.User.Password()
	switch {
	case ok && file != "":
		return nil, errors.New("give a token or a token-file, not both")
	case u.User.Username() != "":
		return nil, errors.New("a token has no user; it is https://:token@host")
	case file == "" && password == "":
		return nil, nil
	case file == "":
		return []Option{WithToken(password)}, nil
	}
	read, err := urlquery.Secret(file)
	return []Option{func(cfg *config) error {
		cfg.token, cfg.rotates = read, true
		return nil
	}}, err
}
