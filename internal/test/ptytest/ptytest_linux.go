// Package ptytest opens terminals for tests.
package ptytest

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// Open opens a pseudo-terminal and returns the end of its user, whose reads can have a deadline,
// and the end of programs.
func Open(t *testing.T) (user, program *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	skip.Unless(t, err == nil, "a terminal")
	user = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { user.Close() })
	skip.Unless(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0) == nil, "a terminal")
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	skip.Unless(t, err == nil, "a terminal")
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	skip.Unless(t, err == nil, "a terminal")
	t.Cleanup(func() { program.Close() })
	return user, program
}
