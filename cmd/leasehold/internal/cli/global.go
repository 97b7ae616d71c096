package cli

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/internal/storeurl"
	"github.com/leasehold-go/leasehold/internal/urlquery"
)

// Variables that name the store if no flag does.
const (
	envStore     = "LEASEHOLD_STORE"
	envStoreFile = "LEASEHOLD_STORE_FILE" // a file whose first line is the URL
	// envHidden replaces LEASEHOLD_STORE for a command if the URL has a password. Its value
	// is the URL without the password.
	envHidden = "LEASEHOLD_STORE_REDACTED"
)

// global holds the flags of all verbs.
type global struct {
	store string
	json  bool
	used  string // the URL that was resolved
	set   *pflag.FlagSet

	configPath string
	configured func() (config, error) // reads the configuration file once
}

func (g *global) flags(f *pflag.FlagSet) {
	f.StringVar(&g.store, "store", "", "store of the locks, a `URL` (default $"+envStore+", the first line of the file $"+envStoreFile+", a configuration file, or a directory of your own)")
	f.StringVar(&g.configPath, "config", "", "read this configuration `FILE` (default $"+envConfig+", your own, or that of the machine)")
	f.BoolVar(&g.json, "json", false, "print JSON for machines")
	g.set, g.configured = f, sync.OnceValues(g.readConfig)
}

// given reports whether the call has the flag.
func (g *global) given(flag string) bool { return g.set != nil && g.set.Changed(flag) }

// storeURL returns the URL of the store, in a form that is also valid for a child in another
// working directory.
func (g *global) storeURL() (string, error) {
	rawURL, err := g.servedURL()
	if rawURL == stores.Memory {
		return "", usage("store %s lives in one process, so a command would lock nothing; name another, such as %s", rawURL, stores.Examples(", "))
	}
	return rawURL, err
}

// servedURL is storeURL for the service, which may use a store in its own memory.
func (g *global) servedURL() (string, error) {
	rawURL, err := g.namedURL()
	if err != nil {
		return "", err
	}
	if rawURL == "" {
		rawURL, err = stores.Default()
	} else {
		rawURL, err = stores.Absolute(rawURL)
	}
	g.used = rawURL
	return rawURL, classify(err)
}

// namedURL returns the URL that the flag, a variable or a configuration file names, or "" if
// there is none.
func (g *global) namedURL() (string, error) {
	switch {
	case g.store != "":
		return g.store, nil
	case g.given("store"): // --store "$UNSET": the default store would lock only this machine
		return "", usage("--store is empty; leave it out for the default, or set the variable from which it comes")
	}
	if rawURL := os.Getenv(envStore); rawURL != "" {
		return rawURL, nil
	}
	rawURL, err := g.filedURL()
	if err != nil {
		return "", err
	}
	return rawURL, foundOutside(rawURL)
}

// filedURL returns the URL in the file of $LEASEHOLD_STORE_FILE or in the configuration file.
func (g *global) filedURL() (string, error) {
	if path := os.Getenv(envStoreFile); path != "" {
		rawURL, err := urlquery.FirstLine(path)
		if err != nil {
			return "", usage("$%s: %w", envStoreFile, err)
		}
		return rawURL, nil
	}
	c, err := g.configured()
	return c.store, err
}

// foundOutside refuses a store that differs from the store of the run around this one, if the
// URL of that was not passed on because of its password. A lock in a different store would
// not exclude the processes that use the outer store.
func foundOutside(rawURL string) error {
	around := os.Getenv(envHidden)
	if public, _ := stores.Public(rawURL); around == "" || public == around {
		return nil
	}
	found := "no file names a store"
	if rawURL != "" {
		found = "the files name " + storeurl.Redact(rawURL)
	}
	return usage("this runs under a lock in %s, whose URL was not passed on because it has a password, and %s; "+
		"give --store, or the outer run --pass-store, or keep the password in a file: password-file=, $%s or a configuration file", around, found, envStoreFile)
}

// withClient returns the function of a verb that uses a client of the store of the flags.
func (g *global) withClient(use func(*cobra.Command, []string, *leasehold.Client) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		rawURL, err := g.storeURL()
		if err != nil {
			return err
		}
		client, err := open(rawURL)
		if err != nil {
			return err
		}
		defer client.Close()
		return use(cmd, args, client)
	}
}

// printResult prints value as a line of JSON with --json, and text otherwise.
func (g *global) printResult(w io.Writer, value any, text string) error {
	if g.json {
		return json.NewEncoder(w).Encode(value)
	}
	_, err := io.WriteString(w, text)
	return err
}

// open returns a client of the store with the given defaults. It has no log: commands report
// the events of its observers.
func open(rawURL string, opts ...leasehold.Option) (*leasehold.Client, error) {
	d, err := stores.Open(rawURL)
	if err != nil {
		return nil, classify(err)
	}
	client, err := leasehold.New(d, append([]leasehold.Option{leasehold.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		d.Close()
		return nil, classify(err)
	}
	return client, nil
}
