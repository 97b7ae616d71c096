package stores

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

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
	u := url.URL{Scheme: "file", Path: urlPath(filepath.Join(dir, "leasehold"))}
	return u.String(), nil
}

// stateDir returns the directory for the persistent state of a user's programs.
func stateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	switch runtime.GOOS {
	case "darwin":
		return os.UserConfigDir() // ~/Library/Application Support
	case "windows":
		return os.UserCacheDir() // %LocalAppData%
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "state"), err
}

// urlPath returns the path of a file URL: with slashes, also before the letter of a drive.
func urlPath(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		return "/" + path
	}
	return path
}
