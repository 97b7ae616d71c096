package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// healthFlags are the flags of `leasehold health`.
type healthFlags struct {
	live       bool
	timeout    duration
	ca         string
	skipVerify bool
}

func newHealth() *cobra.Command {
	f := new(healthFlags)
	cmd := &cobra.Command{
		Use:   "health [flags] [URL]",
		Short: "Ask a service of \"leasehold serve\" whether it is ready",
		Long: strings.TrimSpace(`
Health asks the service at URL, or at http://127.0.0.1:8080, whether locks can be
taken: GET /readyz. It exits with 0 if so and with 69 otherwise. It needs neither a
token nor a store.

It is for images and hosts without curl. Use --live where a failed check restarts the
service: a restart does not help if the store is away.
`),
		Example: `  leasehold health
  leasehold health --live --skip-verify https://127.0.0.1:8443`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rawURL := append(args, "http://127.0.0.1:8080")[0]
			return f.run(cmd.Context(), cmd.OutOrStdout(), rawURL)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.live, "live", false, "ask only whether the service is alive, without its store: GET /livez")
	durationVar(flags, &f.timeout, "timeout", 5*time.Second, "how long to wait for the answer")
	flags.StringVar(&f.ca, "ca", "", "`FILE` of authorities to trust in addition to the system's")
	flags.BoolVar(&f.skipVerify, "skip-verify", false, "accept any certificate")
	return cmd
}

func (f *healthFlags) run(ctx context.Context, out io.Writer, rawURL string) error {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return usage("%s is not an http or https URL", storeurl.Redact(rawURL))
	}
	if f.timeout <= 0 {
		return usage("--timeout %v is not above 0", time.Duration(f.timeout))
	}
	client, err := f.client()
	if err != nil {
		return err
	}
	path, says := "/readyz", "ready"
	if f.live {
		path, says = "/livez", "alive"
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(f.timeout))
	defer cancel()
	if status, err := probe(ctx, client, u.JoinPath(path).String()); err != nil {
		return &exitError{code: codeUnavailable, err: &advised{fmt.Errorf("not %s: %w", says, err), help(status)}}
	}
	_, err = fmt.Fprintln(out, says)
	return err
}

func (f *healthFlags) client() (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: f.skipVerify}
	if f.ca != "" {
		var err error
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool() // a minimal image has no system pool
		}
		if err := trust(config.RootCAs, f.ca); err != nil {
			return nil, usage("--ca: %w", err)
		}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}, nil
}

// trust adds the certificates of a file to a pool.
func trust(pool *x509.CertPool, file string) error {
	pem, err := os.ReadFile(file)
	if err == nil && !pool.AppendCertsFromPEM(pem) {
		err = fmt.Errorf("%s has no certificate in PEM", file)
	}
	return err
}

// help returns advice about a service whose answer has the status, or 0 if there is no whole answer.
func help(status int) string {
	switch status {
	case 0:
		return "does leasehold serve run there? a service at another address is asked by leasehold health URL"
	case http.StatusServiceUnavailable:
		return "see its log"
	}
	return "is that the address of leasehold serve, without a path?"
}

// probe returns nil if the answer is 200, and otherwise an error with the text of the answer. status
// is 0 if there is no whole answer.
func probe(ctx context.Context, client *http.Client, target string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, storeurl.Unquoted(err)
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, storeurl.Unquoted(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	if res.StatusCode == http.StatusOK {
		return 0, err
	}
	return res.StatusCode, fmt.Errorf("%s answers %s: %s", storeurl.Redact(target), res.Status, strings.TrimSpace(string(text)))
}
