//go:build !unix

package filedriver

import (
	"io/fs"
	"os"
)

// noFollow and noWait have no meaning here.
const noFollow, noWait = 0, 0

func isSameFile(path string, known fs.FileInfo) (bool, error) {
	now, err := os.Stat(path)
	return err == nil && os.SameFile(now, known), err
}

func foreignOwner(fs.FileInfo) (name string, foreign bool) { return "", false }
