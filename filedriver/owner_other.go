//go:build !unix

package filedriver

import (
	"errors"
	"io/fs"
	"os"
)

// noFollow and noWait have no meaning here.
const noFollow, noWait = 0, 0

func makePipe(string, fs.FileMode) (*os.File, error) { return nil, errors.ErrUnsupported }

func writeNow(*os.File, []byte) error { return errors.ErrUnsupported }

func foreignOwner(fs.FileInfo) (name string, foreign bool) { return "", false }
