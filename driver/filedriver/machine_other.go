//go:build !linux && !darwin && !windows

package filedriver

import (
	"errors"
	"fmt"
	"runtime"
)

// thisMachine fails: this system has no known clock that all processes share and nobody
// can set.
func thisMachine() (machine, error) {
	return machine{}, fmt.Errorf("directory stores on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func checkLocal(string) error { return nil }
