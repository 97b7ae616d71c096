package proc

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A message is a frame: the length of its text in four bytes, the most significant first,
// and the text. The text is fields with a NUL between them, which neither arguments nor
// paths can contain. The encoders of the standard library would do as well, but preparing
// them takes each of the two processes longer than all of its own work until the child runs.

// maxFrame bounds the text of a message. Linux allows 6 MiB of arguments and environment.
const maxFrame = 64 << 20

const fieldEnd = "\x00"

// frame returns the message with these fields.
func frame(fields ...string) []byte {
	text := strings.Join(fields, fieldEnd)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
}

// readFrame reads a message and returns its fields.
func readFrame(r io.Reader) ([]string, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return nil, fmt.Errorf("proc: a message of %d bytes", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	return strings.Split(string(text), fieldEnd), nil
}

// numbers reads a message of exactly n numbers.
func numbers(r io.Reader, n int) ([]int64, error) {
	fields, err := readFrame(r)
	if err == nil && len(fields) != n {
		err = fmt.Errorf("proc: a message of %d fields, not %d", len(fields), n)
	}
	all := make([]int64, n)
	for i := 0; err == nil && i < n; i++ {
		all[i], err = strconv.ParseInt(fields[i], 10, 64)
	}
	return all, err
}

// decimal returns numbers as the fields of a message.
func decimal(all ...int64) []string {
	fields := make([]string, len(all))
	for i, n := range all {
		fields[i] = strconv.FormatInt(n, 10)
	}
	return fields
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// spec is the first message of the wrapper.
type spec struct {
	Path       string
	Args       []string
	Env        []string
	Dir        string
	Grace      time.Duration
	Deadline   int64 // by the shared clock, or 0
	Foreground bool  // hand the terminal on descriptor 0 to the child
	Addressee  int   // the wrapper, if variables of Env address it instead of the child
}

// specNumbers is how many fields of a spec are numbers: grace, deadline, foreground,
// addressee, and how many arguments there are.
const specNumbers = 5

// fields returns the spec as a message: its numbers, path and directory, the arguments,
// the environment.
func (s spec) fields() []string {
	fields := decimal(int64(s.Grace), s.Deadline, oneIf(s.Foreground), int64(s.Addressee), int64(len(s.Args)))
	fields = append(fields, s.Path, s.Dir)
	return append(append(fields, s.Args...), s.Env...)
}

func readSpec(r io.Reader) (spec, error) {
	fields, err := readFrame(r)
	if err != nil {
		return spec{}, err
	}
	var n [specNumbers]int64
	for i := range n {
		if len(fields) < specNumbers+2 {
			return spec{}, errors.New("proc: a spec of too few fields")
		}
		if n[i], err = strconv.ParseInt(fields[i], 10, 64); err != nil {
			return spec{}, err
		}
	}
	path, dir, rest := fields[specNumbers], fields[specNumbers+1], fields[specNumbers+2:]
	args := n[specNumbers-1]
	if args < 0 || args > int64(len(rest)) {
		return spec{}, fmt.Errorf("proc: %d arguments in %d fields", args, len(rest))
	}
	return spec{
		Path: path, Dir: dir, Args: rest[:args], Env: rest[args:],
		Grace: time.Duration(n[0]), Deadline: n[1], Foreground: n[2] != 0, Addressee: int(n[3]),
	}, nil
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

func (o order) fields() []string { return decimal(int64(o.Kind), int64(o.Signal), o.At) }

func readOrder(r io.Reader) (order, error) {
	n, err := numbers(r, 3)
	return order{Kind: orderKind(n[0]), Signal: syscall.Signal(n[1]), At: n[2]}, err
}

type reportKind int

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
	Pid     int
	Errno   syscall.Errno
	Signal  syscall.Signal
	Status  syscall.WaitStatus
	At      int64
	Stopped bool
	Late    bool
}

func (r report) fields() []string {
	return decimal(int64(r.Kind), int64(r.Pid), int64(r.Errno), int64(r.Signal), int64(r.Status), r.At,
		oneIf(r.Stopped), oneIf(r.Late))
}

func readReport(r io.Reader) (report, error) {
	n, err := numbers(r, 8)
	return report{
		Kind: reportKind(n[0]), Pid: int(n[1]), Errno: syscall.Errno(n[2]), Signal: syscall.Signal(n[3]),
		Status: syscall.WaitStatus(n[4]), At: n[5], Stopped: n[6] != 0, Late: n[7] != 0,
	}, err
}

// orderTimeout bounds the sending of an order. A guard that has left hundreds of
// kilobytes unread for that long hangs.
const orderTimeout = time.Second

// link is the wrapper's end of the socket to the guard. When the wrapper ends, for any
// reason, the link closes and the guard kills the command.
type link struct {
	file   *os.File
	in     *bufio.Reader
	unsent []byte // of orders that timed out; a partly sent frame must be completed first
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

// introduce sends the spec. It may be long, so unlike orders it may take long.
func (l *link) introduce(s spec) error {
	_, err := l.file.Write(frame(s.fields()...))
	return err
}

// order sends an order. It tries again once after a timeout: this process may have been
// stopped before the first try.
func (l *link) order(o order) error {
	l.unsent = append(l.unsent, frame(o.fields()...)...)
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

func (l *link) receive() (report, error) { return readReport(l.in) }
