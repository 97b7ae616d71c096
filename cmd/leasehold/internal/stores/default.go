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

// Default returns the URL of the directory that serves when no store is named:
// leasehold below the user's state directory. It excludes the processes of one
// user on one machine from each other.
func Default() (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", fmt.Errorf("no store was named and there is no place for the default: %w: %w", driver.ErrInvalid, err)
	}
	u := url.URL{Scheme: "file", Path: urlPath(filepath.Join(dir, "leasehold"))}
	return u.String(), nil
}

// stateDir is where a user's programs keep what should survive them.
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

// urlPath is the path of a file URL: with slashes, and one before a drive.
func urlPath(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		return "/" + path
	}
	return path
}
