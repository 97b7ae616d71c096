//go:build unix

package filedriver

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

const (
	// noFollow has a file opened only if it is no symbolic link.
	noFollow = syscall.O_NOFOLLOW
	// noWait makes opening a pipe fail unless it has a reader.
	noWait = syscall.O_NONBLOCK
)

// isSameFile reports whether path leads to a known file. It allocates less than [os.Stat]
// and [os.SameFile].
func isSameFile(path string, known fs.FileInfo) (bool, error) {
	var now syscall.Stat_t
	if err := syscall.Stat(path, &now); err != nil {
		return false, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	then, ok := known.Sys().(*syscall.Stat_t)
	return ok && now.Dev == then.Dev && now.Ino == then.Ino, nil
}

// foreignOwner reports whether a file belongs to another user, and the name of that user.
// The administrator does not count as another user.
func foreignOwner(info fs.FileInfo) (name string, foreign bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid == 0 || int64(stat.Uid) == int64(os.Geteuid()) {
		return "", false
	}
	id := strconv.FormatUint(uint64(stat.Uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username, true
	}
	return fmt.Sprintf("the user %s", id), true
}
