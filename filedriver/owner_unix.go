//go:build unix

package filedriver

import (
	"errors"
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
	// noWait has a pipe opened only if somebody reads it.
	noWait = syscall.O_NONBLOCK
)

// makePipe makes a named pipe with the permissions that dirMode gives to files. It opens
// both ends, so that the pipe does not end with a writer.
func makePipe(path string, dirMode fs.FileMode) (*os.File, error) {
	mode := dirMode & 0o666
	if err := syscall.Mkfifo(path, uint32(mode)); err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|noFollow|noWait, 0)
}

// writeNow writes b to a pipe if it fits as a whole, and never waits. A deadline would
// refuse data that fits if this process was stopped just before the write.
func writeNow(f *os.File, b []byte) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Write(func(fd uintptr) bool {
		for failed = syscall.EINTR; errors.Is(failed, syscall.EINTR); {
			_, failed = syscall.Write(int(fd), b)
		}
		return true
	})
	return errors.Join(err, failed)
}

// foreignOwner reports whether a file belongs to another user, and to whom. The
// administrator is not another user.
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
