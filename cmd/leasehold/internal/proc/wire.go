//go:build linux || darwin

package proc

import (
	"bytes"
	"encoding/gob"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// spec is the first message of the wrapper. It is sent as gob, which keeps arguments that
// are not UTF-8.
type spec struct {
	Path       string
	Args       []string
	Env        []string
	Dir        string
	Grace      time.Duration
	Deadline   int64 // by the shared clock, 0 for none
	Foreground bool  // hand the terminal on descriptor 0 to the child
}

type orderKind int

const (
	orderSignal   orderKind = iota + 1 // Signal to the child's group
	orderDeadline                      // the deadline is now At
	orderStop                          // TERM now, KILL at At
)

// order is a message of the wrapper while the child runs.
type order struct {
	Kind   orderKind
	Signal syscall.Signal
	At     int64
}

type reportKind int

const (
	reportStarted  reportKind = iota + 1 // as process Pid
	reportFailed                         // could not be executed, because of Errno
	reportStopped                        // the child was stopped by Signal
	reportDeadline                       // the deadline is At, as ordered or because it is final
	reportEnded                          // the whole tree is gone
)

// report is a message of the guard.
type report struct {
	Kind    reportKind
	Pid     int
	Errno   syscall.Errno
	Signal  syscall.Signal
	Status  syscall.WaitStatus
	At      int64
	Stopped bool
	Late    bool
}

// orderTimeout bounds the sending of an order. A guard that has left hundreds of
// kilobytes unread for so long hangs.
const orderTimeout = time.Second

// link is the wrapper's end of the socket to the guard. When it closes, for whatever
// reason the wrapper ended, the guard kills the command.
type link struct {
	file *os.File
	text bytes.Buffer // what enc has written and is not sent
	enc  *gob.Encoder
	dec  *gob.Decoder
}

// newLink returns the wrapper's end and the descriptor of the guard's.
func newLink() (*link, int, error) {
	fds, err := socketpair()
	if err != nil {
		return nil, -1, os.NewSyscallError("socketpair", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, -1, os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(fds[0]), "guard")
	l := &link{file: f, dec: gob.NewDecoder(f)}
	l.enc = gob.NewEncoder(&l.text)
	return l, fds[1], nil
}

// introduce sends the spec. It may be long, so unlike orders it may take long.
func (l *link) introduce(s spec) error {
	if err := l.enc.Encode(s); err != nil {
		return err
	}
	_, err := l.text.WriteTo(l.file)
	return err
}

// order sends an order. It tries again once after a timeout: this process may have been
// stopped before the first try.
func (l *link) order(o order) error {
	if err := l.enc.Encode(o); err != nil {
		return err
	}
	var err error
	for range 2 {
		if err = l.file.SetWriteDeadline(time.Now().Add(orderTimeout)); err != nil {
			return err
		}
		if _, err = l.text.WriteTo(l.file); !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return err
}

func (l *link) receive() (r report, err error) {
	err = l.dec.Decode(&r)
	return r, err
}
