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

// spec is the first thing the wrapper sends. It travels as gob, which leaves
// arguments that are not UTF-8 as they are.
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

// order is what the wrapper sends while the child runs.
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

// report is what the guard sends.
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

// orderPatience is how long an order may take to be written. A guard that has
// left hundreds of kilobytes unread for so long is not alive.
const orderPatience = time.Second

// link is the wrapper's end of the socket to the guard. Its closing, by whatever
// death of the wrapper, is the guard's signal to kill.
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

// introduce sends the first thing. It may be long, so unlike orders it may take
// long.
func (l *link) introduce(s spec) error {
	if err := l.enc.Encode(s); err != nil {
		return err
	}
	_, err := l.text.WriteTo(l.file)
	return err
}

// order sends an order. The time of the first try may have passed before it began:
// this process may have been stopped in between.
func (l *link) order(o order) error {
	if err := l.enc.Encode(o); err != nil {
		return err
	}
	var err error
	for range 2 {
		if err = l.file.SetWriteDeadline(time.Now().Add(orderPatience)); err != nil {
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
