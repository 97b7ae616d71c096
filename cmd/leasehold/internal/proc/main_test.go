package proc

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// bound is the time limit of operations without their own limit.
const bound = time.Minute

// exitGraceVar names an environment variable with the exitGrace of guards. Guards read it
// in a variable's initialization, because their init never returns.
const exitGraceVar = "PROC_EXIT_GRACE"

var _ = func() bool {
	d, err := time.ParseDuration(os.Getenv(exitGraceVar))
	if err == nil {
		exitGrace = d
	}
	return err == nil
}()

// The test binary has all roles: wrapper, guard (by the init of the package), child and grandchild.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each process sleeps for a second at its exit
	switch os.Getenv("PROC_ROLE") {
	case "":
		// Under nohup the children of the tests would inherit an ignored SIGHUP.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		goleak.VerifyTestMain(m)
	case "wrapper":
		playWrapper()
	case "tree":
		signal.Ignore(syscall.SIGTERM)
		play("leaf", false)
		play("leaf", true)
		must(play("daemon", true).Wait())
		playLeaf()
	case "daemon":
		play("leaf", true)
	case "leaf":
		signal.Ignore(syscall.SIGTERM)
		playLeaf()
	case "echo":
		playEcho()
	case "root":
		must(syscall.Setuid(0)) // as sudo does
		playLeaf()
	}
	os.Exit(0)
}

// treeSize is the number of processes of the role "tree": itself, a child in its
// group, a child in a new session, and a daemon without a parent.
const treeSize = 4

func play(role string, session bool) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PROC_ROLE="+role)
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	must(cmd.Start())
	return cmd
}

func playLeaf() {
	fmt.Println("up")
	<-time.After(10 * bound) // in case the test does not kill it
}

// playEcho prints the name of every signal that it receives, and exits with 7 on TERM.
func playEcho() {
	c := make(chan os.Signal, 16)
	signal.Notify(c, echoed()...)
	fmt.Println("up")
	for s := range c {
		fmt.Println(signalName(s.(syscall.Signal)))
		if s == syscall.SIGTERM {
			os.Exit(7)
		}
	}
}

// wrapperScript has the parameters of the role "wrapper", in PROC_SCRIPT. The command's output
// is descriptor 3, reports go to 4, and orders are lines on 5.
type wrapperScript struct {
	Args  []string
	Role  string
	Grace time.Duration
}

type wrapperReport struct {
	Pid    int
	Err    string
	Result *Result

	Survivor *Survivor
}

func playWrapper() {
	for fd := 3; fd <= 5; fd++ {
		unix.CloseOnExec(fd)
	}
	var s wrapperScript
	must(json.Unmarshal([]byte(os.Getenv("PROC_SCRIPT")), &s))
	out, reports := os.NewFile(3, "out"), json.NewEncoder(os.NewFile(4, "reports"))
	cmd := roleCommand(s.Role, s.Args)
	cmd.Stdout, cmd.Grace = out, s.Grace
	cmd.Survivor = func(s Survivor) { must(reports.Encode(wrapperReport{Survivor: &s})) }
	p, err := Start(cmd)
	if err != nil {
		must(reports.Encode(wrapperReport{Err: err.Error()}))
		os.Exit(1)
	}
	out.Close()
	must(reports.Encode(wrapperReport{Pid: p.Pid()}))
	go func() {
		for lines := bufio.NewScanner(os.NewFile(5, "orders")); lines.Scan(); {
			verb, text, _ := strings.Cut(lines.Text(), " ")
			d, _ := time.ParseDuration(text)
			switch verb {
			case "stop":
				p.Stop(d)
				continue
			case "peer-gone":
				writeToNobody()
			default:
				p.SetDeadline(time.Now().Add(d))
			}
			must(reports.Encode(wrapperReport{Pid: p.Pid()}))
		}
	}()
	r, err := p.Wait()
	done := wrapperReport{Result: &r}
	if err != nil {
		done.Err = err.Error()
	}
	must(reports.Encode(done))
	os.Exit(r.Code)
}

// writeToNobody writes to a connection that the peer has closed.
func writeToNobody() {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(err)
	must(unix.Close(ends[0]))
	if _, err := unix.Write(ends[1], []byte("PING")); !errors.Is(err, unix.EPIPE) {
		panic(err)
	}
}

// echoed returns the signals that playEcho prints.
func echoed() []os.Signal {
	return slices.DeleteFunc(Forwarded(), func(s os.Signal) bool { return s == syscall.SIGURG }) // Go sends it to itself
}

func roleCommand(role string, args []string) Command {
	if role == "" {
		return Command{Args: args}
	}
	return Command{Args: []string{os.Args[0]}, Env: append(os.Environ(), "PROC_ROLE="+role)}
}

// wrapper is a wrapper in a separate process.
type wrapper struct {
	t       *testing.T
	cmd     *exec.Cmd
	child   int
	guard   int
	out     *lines
	reports *json.Decoder
	orders  *os.File
}

func startWrapper(t *testing.T, s wrapperScript, adjust func(*exec.Cmd)) *wrapper {
	t.Helper()
	text, _ := json.Marshal(s)
	outR, outW := pipe(t)
	repR, repW := pipe(t)
	ordR, ordW := pipe(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PROC_ROLE=wrapper", "PROC_SCRIPT="+string(text))
	cmd.ExtraFiles = []*os.File{outW, repW, ordR}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if adjust != nil {
		adjust(cmd)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	w := &wrapper{t: t, cmd: cmd, out: readLines(t, outR), reports: json.NewDecoder(repR), orders: ordW}
	t.Cleanup(func() { bury(cmd, w.guard) })
	must(repR.SetReadDeadline(time.Now().Add(bound)))
	w.child = w.report().Pid
	w.guard = find(func(e procEntry) bool { return e.ppid == cmd.Process.Pid })
	return w
}

// bury kills a process and its descendants, and reaps them. Descendants become children of
// this process when their parent dies.
func bury(cmd *exec.Cmd, orphans ...int) {
	all, _ := processes(0)
	below := under(all, func(e procEntry) bool { return e.pid == cmd.Process.Pid })
	for _, e := range below {
		_ = e.signal(syscall.SIGKILL)
		orphans = append(orphans, e.pid)
	}
	_ = cmd.Wait()
	for _, pid := range orphans {
		if pid != 0 {
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}
}

func (w *wrapper) report() (r wrapperReport) {
	w.t.Helper()
	if err := w.reports.Decode(&r); err != nil {
		w.t.Fatalf("no report of the wrapper: %v", err)
	}
	return r
}

// setDeadline makes the wrapper set its deadline, and waits for its report.
func (w *wrapper) setDeadline(d time.Duration) {
	w.t.Helper()
	fmt.Fprintln(w.orders, "deadline", d)
	w.report()
}

func (w *wrapper) signal(sig syscall.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(sig); err != nil {
		w.t.Fatal(err)
	}
}

// find returns the id of the first process that is accepts, or 0.
func find(is func(procEntry) bool) int {
	all, _ := processes(0)
	for _, e := range all {
		if is(e) {
			return e.pid
		}
	}
	return 0
}

// lines is the output of a tree of processes. Its end proves that they all have ended,
// because each of them holds the pipe.
type lines struct {
	t *testing.T
	f *os.File
	r *bufio.Reader
}

func readLines(t *testing.T, f *os.File) *lines {
	return &lines{t: t, f: f, r: bufio.NewReader(f)}
}

// want reads the line text. The lines before may precede it.
func (l *lines) want(text string, before ...string) {
	l.t.Helper()
	must(l.f.SetReadDeadline(time.Now().Add(bound)))
	for {
		got, err := l.r.ReadString('\n')
		switch line := strings.TrimSpace(got); {
		case err == nil && line == text:
			return
		case err != nil || !slices.Contains(before, line):
			l.t.Fatalf("read %q, %v; want %q", got, err, text)
		}
	}
}

// wantNothing checks that no line is printed for a while.
func (l *lines) wantNothing(within time.Duration) {
	l.t.Helper()
	must(l.f.SetReadDeadline(time.Now().Add(within)))
	if got, err := l.r.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) || got != "" {
		l.t.Fatalf("read %q, %v; want no output", got, err)
	}
}

func (l *lines) wantUp(n int) {
	l.t.Helper()
	for range n {
		l.want("up")
	}
}

func (l *lines) wantEnd(within time.Duration) {
	l.t.Helper()
	must(l.f.SetReadDeadline(time.Now().Add(within)))
	if rest, err := io.ReadAll(l.r); errors.Is(err, os.ErrDeadlineExceeded) {
		l.t.Fatalf("a process still lives after %v; read %q", within, rest)
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

// start starts cmd with this process as its wrapper, and returns its output.
func start(t *testing.T, cmd Command) (*Process, *lines) {
	t.Helper()
	r, w := pipe(t)
	cmd.Stdout = w
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		p.Stop(0)
		wait(t, p)
	})
	return p, readLines(t, r)
}

func wait(t *testing.T, p *Process) Result {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(bound):
		t.Fatal("Wait does not return")
	}
	r, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// must panics on errors that cannot happen, and on errors in roles, which have no test.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func sh(script string) Command { return Command{Args: []string{"sh", "-c", script}} }

func signalName(sig syscall.Signal) string {
	return cmp.Or(unix.SignalName(sig), strconv.Itoa(int(sig))) // real-time signals have no name
}
