package cli

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/stores"
)

// envStore names the store when no flag does.
const envStore = "LEASEHOLD_STORE"

// global holds the flags of all verbs.
type global struct {
	store string
	json  bool
	used  string // the URL that was resolved
}

func (g *global) flags(f *pflag.FlagSet) {
	f.StringVar(&g.store, "store", "", "store of the locks, a `URL` (default $"+envStore+", or a directory of your own)")
	f.BoolVar(&g.json, "json", false, "print JSON for machines")
}

// storeURL resolves the store's URL, in a form that a child in another working directory
// understands too.
func (g *global) storeURL() (string, error) {
	rawURL, err := g.servedURL()
	if rawURL == stores.Memory {
		return "", usage("store %s lives in one process, so a command would lock nothing; name another, such as %s", rawURL, stores.Examples(", "))
	}
	return rawURL, err
}

// servedURL is storeURL for a process that keeps the store to itself: memory is allowed.
func (g *global) servedURL() (string, error) {
	rawURL := g.store
	if rawURL == "" {
		rawURL = os.Getenv(envStore)
	}
	var err error
	if rawURL == "" {
		rawURL, err = stores.Default()
	} else {
		rawURL, err = stores.Absolute(rawURL)
	}
	g.used = rawURL
	return rawURL, classify(err)
}

// client returns a client of the store that the flags name.
func (g *global) client() (*leasehold.Client, error) {
	rawURL, err := g.storeURL()
	if err != nil {
		return nil, err
	}
	return open(rawURL)
}

// open returns a client of the store with the given defaults.
func open(rawURL string, opts ...leasehold.Option) (*leasehold.Client, error) {
	d, err := stores.Open(rawURL)
	if err != nil {
		return nil, classify(err)
	}
	client, err := leasehold.New(d, opts...)
	if err != nil {
		d.Close()
		return nil, classify(err)
	}
	return client, nil
}
