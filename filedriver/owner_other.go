//go:build !unix

package filedriver

import "io/fs"

// noFollow and noWait have no meaning here.
const noFollow, noWait = 0, 0

func foreignOwner(fs.FileInfo) (name string, foreign bool) { return "", false }
