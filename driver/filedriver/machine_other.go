//go:build !linux && !darwin && !windows

package filedriver

import (
	"errors"
	"fmt"
	"runtime"
)

// thisMachine fails: on this system no clock is known that all processes share and that
// cannot be set.
func thisMachine() (machine, error) {
	return machine{}, fmt.Errorf("directory stores on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func checkLocal(string) error { return nil }
