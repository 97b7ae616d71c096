package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/internal/check"
)

// envConfig names the configuration file, if --config does not.
const envConfig = "LEASEHOLD_CONFIG"

// systemConfig is the configuration file of a machine.
const systemConfig = "/etc/leasehold.yaml"

// config has the values of the configuration file. Flags and the environment win over it.
type config struct {
	store  string // with the prefix, if there is one
	prefix *string
	owner  string
	ttl    time.Duration
}

// configKeys are the keys that a configuration file may have.
var configKeys = []string{"owner", "prefix", "store", "ttl"}

// configFile returns the path of the only configuration file that is read: --config,
// $LEASEHOLD_CONFIG, the user's file if it exists, or the file of the machine. named reports
// whether the call or the environment names it.
func (g *global) configFile() (path string, named bool) {
	if path := cmp.Or(g.configPath, os.Getenv(envConfig)); path != "" {
		return path, true
	}
	if dir, err := os.UserConfigDir(); err == nil {
		path := filepath.Join(dir, "leasehold", "config.yaml")
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path, false
		}
	}
	return systemConfig, false
}

// readConfig reads the configuration file. If the file is not named, the result is empty if
// the file does not exist, or cannot be read and is not needed for the store.
func (g *global) readConfig() (config, error) {
	var c config
	if g.given("config") && g.configPath == "" {
		return c, usage("--config is empty; leave it out for the default, or set the variable from which it comes")
	}
	path, named := g.configFile()
	needed := g.store == "" && cmp.Or(os.Getenv(envStore), os.Getenv(envStoreFile)) == ""
	text, err := os.ReadFile(path)
	if err != nil && !named && (!needed || errors.Is(err, fs.ErrNotExist)) {
		return c, nil
	}
	if err == nil {
		err = c.read(text)
	}
	if err != nil {
		return config{}, usage("configuration file %s: %w", path, err)
	}
	return c, c.addPrefix()
}

// read sets the values in the text of a file.
func (c *config) read(text []byte) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("%w (quote a value that ends with a colon)", err)
	}
	if len(doc.Content) == 0 {
		return nil // an empty file
	}
	pairs := doc.Content[0]
	if pairs.Kind != yaml.MappingNode {
		return errors.New("want lines of the form key: value")
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(pairs.Content); i += 2 {
		key, value := pairs.Content[i], pairs.Content[i+1]
		err := c.set(key.Value, value)
		if seen[key.Value] {
			err = fmt.Errorf("%s is given twice", key.Value)
		}
		if seen[key.Value] = true; err != nil {
			return fmt.Errorf("line %d: %w", key.Line, err)
		}
	}
	return nil
}

func (c *config) set(key string, node *yaml.Node) error {
	if node.Kind != yaml.ScalarNode {
		return fmt.Errorf("%s is not one value", key)
	}
	text := node.Value
	switch key {
	case "store":
		c.store = text
		_, err := stores.Absolute(text)
		return err
	case "prefix":
		c.prefix = &text
	case "owner":
		c.owner = text
		return checkOwner(text)
	case "ttl":
		var d duration
		if err := d.Set(text); err != nil {
			return fmt.Errorf("ttl: %w", err)
		}
		c.ttl = time.Duration(d)
		return check.Range("ttl", c.ttl, check.MinTTL, check.MaxTTL)
	default:
		return fmt.Errorf("unknown key %q; known are %s", key, strings.Join(configKeys, ", "))
	}
	return nil
}

// checkOwner checks the name of an owner, which leaves room for a random part.
func checkOwner(name string) error {
	if name == "" || strings.ContainsAny(name, "\n\r\t") || len(name) > 200 {
		return fmt.Errorf("owner %q is not between 1 and 200 bytes of one line", name)
	}
	return nil
}

// addPrefix adds the prefix to the URL of the store that the file names, or of the default
// store.
func (c *config) addPrefix() error {
	if c.prefix == nil {
		return nil
	}
	if c.store == "" {
		store, err := stores.Default()
		if err != nil {
			return classify(err)
		}
		c.store = store
	}
	_, query, asked := strings.Cut(c.store, "?")
	switch values, err := url.ParseQuery(query); {
	case err == nil && values.Has("prefix"):
		return usage("configuration file: prefix %q: the URL of the store has a prefix already", *c.prefix)
	case asked:
		c.store += "&"
	default:
		c.store += "?"
	}
	c.store += "prefix=" + url.QueryEscape(*c.prefix)
	return nil
}

// prepare refuses durations out of bounds, and makes the TTL of the configuration the default of
// a verb that has one.
func (g *global) prepare(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if d, ok := f.Value.(*duration); ok && *d < 0 {
			err = usage("--%s %v is negative", f.Name, time.Duration(*d))
		}
	})
	if err != nil {
		return err
	}
	flag := cmd.Flags().Lookup("ttl")
	if flag == nil {
		return nil
	}
	if err := check.Range("TTL", time.Duration(*flag.Value.(*duration)), check.MinTTL, check.MaxTTL); err != nil {
		return classify(err)
	}
	if flag.Changed {
		return nil
	}
	c, err := g.configured()
	if err != nil || c.ttl == 0 {
		return classify(err)
	}
	return flag.Value.Set(c.ttl.String())
}
