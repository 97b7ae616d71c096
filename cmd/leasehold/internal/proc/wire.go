package proc

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Orders and reports are structs of a fixed size, in the form of encoding/binary. A spec is a
// header of that form and a text: fields with a NUL between them, which neither arguments nor
// paths can contain. The other encoders of the standard library would do as well, but preparing
// them takes each of the two processes longer than all of its own work until the child runs.

// maxText bounds the text of a spec. Linux allows 6 MiB of arguments and environment.
const maxText = 64 << 20

const fieldEnd = "\x00"

// encode returns the bytes of a message, or of the header of a spec.
func encode(message any) []byte {
	b, err := binary.Append(nil, binary.BigEndian, message)
	if err != nil {
		panic("proc: " + err.Error()) // a field has no fixed size
	}
	return b
}

func decode(r io.Reader, message any) error { return binary.Read(r, binary.BigEndian, message) }

// received delivers the messages from the other end, and closes when that end is gone.
func received[M order | report](in io.Reader) <-chan M {
	c := make(chan M)
	go func() {
		defer close(c)
		for {
			var m M
			if decode(in, &m) != nil {
				return
			}
			c <- m
		}
	}()
	return c
}

// spec is the first message of the wrapper.
type spec struct {
	Path       string
	Args       []string
	Env        []string
	Grace      time.Duration
	Deadline   int64 // by the shared clock, or 0
	Foreground bool  // hand the terminal on descriptor 0 to the child
	Addressee  int   // the wrapper, if variables of Env address it instead of the child
}

// specHeader has the numbers of a spec. Args counts the arguments, Bytes the text.
type specHeader struct {
	Grace, Deadline int64
	Foreground      bool
	Addressee       int64
	Args, Bytes     int64
}

// encode returns the spec as a message. Its text is the path, the arguments, the environment.
func (s spec) encode() []byte {
	text := strings.Join(slices.Concat([]string{s.Path}, s.Args, s.Env), fieldEnd)
	header := specHeader{
		Grace: int64(s.Grace), Deadline: s.Deadline, Foreground: s.Foreground, Addressee: int64(s.Addressee),
		Args: int64(len(s.Args)), Bytes: int64(len(text)),
	}
	return append(encode(header), text...)
}

func readSpec(r io.Reader) (spec, error) {
	var h specHeader
	if err := decode(r, &h); err != nil {
		return spec{}, err
	}
	if h.Bytes < 0 || h.Bytes > maxText {
		return spec{}, fmt.Errorf("proc: a spec of %d bytes", h.Bytes)
	}
	text := make([]byte, h.Bytes)
	if _, err := io.ReadFull(r, text); err != nil {
		return spec{}, err
	}
	fields := strings.Split(string(text), fieldEnd)
	if h.Args < 0 || h.Args > int64(len(fields)-1) {
		return spec{}, fmt.Errorf("proc: %d arguments in %d fields", h.Args, len(fields))
	}
	return spec{
		Path: fields[0], Args: fields[1 : 1+h.Args], Env: fields[1+h.Args:],
		Grace: time.Duration(h.Grace), Deadline: h.Deadline, Foreground: h.Foreground, Addressee: int(h.Addressee),
	}, nil
}

type orderKind int32

const (
	orderSignal   orderKind = iota + 1 // Signal to the child's group
	orderDeadline                      // the deadline is now At
	orderStop                          // TERM now, KILL at At
)

// order is a message of the wrapper while the child runs.
type order struct {
	Kind   orderKind
	Signal int32
	At     int64
}

type reportKind int32

const (
	reportStarted  reportKind = iota + 1 // as process Pid
	reportFailed                         // could not be executed, because of Errno or because it was Late
	reportStopped                        // the child was stopped by Signal
	reportDeadline                       // the deadline is At, as ordered or because it is final
	reportSurvives                       // process Pid does not end; Errno is EPERM if it may not be signalled
	reportLeftover                       // the child has ended and left process Pid, which is ended
	reportEnded                          // the whole tree is gone
)

// report is a message of the guard.
type report struct {
	Kind    reportKind
	Pid     int32
	Errno   uint32
	Signal  int32
	Status  syscall.WaitStatus
	At      int64
	Stopped bool
	Late    bool
}

// orderTimeout bounds the sending of an order. A guard that has left hundreds of
// kilobytes unread for that long hangs.
const orderTimeout = time.Second

// link is the wrapper's end of the socket to the guard. When the wrapper ends, for any
// reason, the link closes and the guard kills the command.
type link struct {
	file   *os.File
	in     *bufio.Reader
	unsent []byte // of orders that timed out; a partly sent order must be completed first
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
	return &link{file: f, in: bufio.NewReader(f)}, fds[1], nil
}

// introduce sends the spec, and returns the first report. A spec may be long, so unlike orders
// it may take long.
func (l *link) introduce(s spec) (first report, err error) {
	if _, err = l.file.Write(s.encode()); err == nil {
		err = decode(l.in, &first)
	}
	return first, err
}

// order sends an order. It tries again once after a timeout: this process may have been
// stopped before the first try.
func (l *link) order(o order) error {
	l.unsent = append(l.unsent, encode(o)...)
	var err error
	for range 2 {
		if err = l.file.SetWriteDeadline(time.Now().Add(orderTimeout)); err != nil {
			return err
		}
		var n int
		n, err = l.file.Write(l.unsent)
		if l.unsent = l.unsent[n:]; !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return err
}
