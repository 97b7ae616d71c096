//go:build !unix

package redistest

import (
	"errors"
	"os/exec"
)

// dieWithParent does nothing: only Linux offers it.
func dieWithParent(*exec.Cmd) {}

func (p *process) stop() error { return errors.ErrUnsupported }

func (p *process) cont() error { return errors.ErrUnsupported }
