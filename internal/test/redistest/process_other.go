//go:build !unix

package redistest

import (
	"errors"
	"os/exec"
)

// dieWithParent has no effect: only Linux supports it.
func dieWithParent(*exec.Cmd) {}

func (p *process) stop() error { return errors.ErrUnsupported }

func (p *process) cont() error { return errors.ErrUnsupported }
