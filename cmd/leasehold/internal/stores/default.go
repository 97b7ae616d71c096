package stores

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"github.com/leasehold-go/leasehold/driver"
)

// Default returns the URL of the store for users who do not name a store: the directory
// leasehold below the user's state directory. Its locks work between the processes of one
// user on one machine.
func Default() (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", fmt.Errorf("no store was named and there is no place for the default: %w: %w", driver.ErrInvalid, err)
	}
	u := url.URL{Scheme: "file", Path: filepath.Join(dir, "leasehold")}
	return u.String(), nil
}

// stateDir returns the directory for the persistent state of a user's programs.
func stateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	if runtime.GOOS == "darwin" {
		return os.UserConfigDir() // ~/Library/Application Support
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "state"), err
}
