//go:build linux || darwin

package cli

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel sends PIPE to a process that writes to a connection after the peer has closed it.
func TestWatchSignals_HR_F8_AConnectionThatBreaksEndsNoWait(t *testing.T) {
	ctx, s := watchSignals(t.Context())
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[1])
	_ = unix.Close(ends[0])
	if _, err := unix.Write(ends[1], []byte("PING")); !errors.Is(err, unix.EPIPE) {
		t.Fatal(err)
	}
	later := make(chan os.Signal, 1) // Go delivers signals in the order of their numbers, or of their arrival
	signal.Notify(later, syscall.SIGWINCH)
	defer signal.Stop(later)
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	<-later
	s.detach()
	s.stop()
	if ctx.Err() != nil {
		t.Errorf("the wait ended")
	}
}
