package proc

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/internal/test/ptytest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// inForeground makes a process the leader of a terminal.
func inForeground(tty *os.File) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Stdin, cmd.SysProcAttr = tty, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
}

func TestTerminal_CtrlCIsDeliveredOnce(t *testing.T) {
	for name, hasTerminal := range map[string]bool{"to a child in the foreground": true, "to a child without the terminal": false} {
		t.Run(name, func(t *testing.T) {
			pty, tty := ptytest.Open(t)
			w := startWrapper(t, wrapperScript{Role: "echo"}, func(cmd *exec.Cmd) {
				inForeground(tty)(cmd)
				if !hasTerminal { // nil is /dev/null
					cmd.Stdin, cmd.Stdout, cmd.SysProcAttr.Ctty = nil, tty, 1
				}
			})
			w.out.want("up")
			want := w.cmd.Process.Pid
			if hasTerminal {
				want = w.child
			}
			if group := foreground(t, pty); group != want {
				t.Errorf("group %d is in the foreground, want %d", group, want)
			}
			fmt.Fprint(pty, "\x03")
			w.out.want("SIGINT")
			w.signal(syscall.SIGUSR1)
			w.out.want("SIGUSR1") // and no second SIGINT before it
		})
	}
}

func TestTerminal_AnInterruptedChildIsReportedAsSuch(t *testing.T) {
	pty, tty := ptytest.Open(t)
	w := startWrapper(t, wrapperScript{Role: "leaf"}, inForeground(tty))
	w.out.want("up")
	fmt.Fprint(pty, "\x03")
	want := Result{Code: 130, Signal: syscall.SIGINT, Interrupted: true}
	if r := w.report(); *r.Result != want {
		t.Errorf("%+v, want %+v", *r.Result, want)
	}
}

func TestTerminal_CtrlZWithoutAShellAboveIsUndone(t *testing.T) {
	pty, tty := ptytest.Open(t)
	w := startWrapper(t, wrapperScript{Args: []string{"sh", "-c", "echo up; read x; echo $x"}}, inForeground(tty))
	w.out.want("up")
	fmt.Fprint(pty, "\x1a")
	fmt.Fprint(pty, "hello\n")
	w.out.want("hello")
}

func TestTerminal_AJobControlShellSuspendsAndResumesTheChild(t *testing.T) {
	pty := startShell(t)
	pty.say(run("echo child-is-up; read x; echo child-got-$x"))
	pty.want("\nchild-is-up")
	fmt.Fprint(pty, "\x1a")
	pty.want("Stopped")
	pty.say("fg; echo fg-is-over")
	pty.say("hello")
	pty.want("\nchild-got-hello")
	pty.want("\nfg-is-over")
}

func TestTerminal_AChildStartedInTheBackgroundGetsTheTerminalWithFg(t *testing.T) {
	pty := startShell(t)
	pty.say(run("read x; echo child-got-$x") + " &")
	pty.say("until jobs | grep Stopped; do sleep 0.05; done; fg")
	pty.want("\n[1]+  Stopped")
	pty.say("hello")
	pty.want("\nchild-got-hello")
}

func TestTerminal_AChildThatCanNeverHaveTheTerminalIsEnded(t *testing.T) {
	pty := startShell(t)
	text := strings.ReplaceAll(run("read x </dev/tty"), "'", `'"'"'`)
	pty.say("(sh -c '" + text + "; echo over-$?' &)") // not a job of the interactive shell
	pty.want("over-137")                              // 137: the grace of this wrapper is zero
	sh := find(func(e procEntry) bool { return e.ppid == os.Getpid() && e.pid != pty.shell })
	_, _ = syscall.Wait4(sh, nil, 0, nil) // it has become a child of this process
}

func TestTerminal_AChildKilledInRawModeLeavesTheTerminalSane(t *testing.T) {
	pty := startShell(t)
	pty.say(run("stty raw -echo; echo child-is-raw; kill -KILL $$"))
	pty.want("\nchild-is-raw")
	pty.want("\nouter-prompt:")
	pty.say("stty -a")
	pty.want(" icanon")
}

func TestTerminal_AnInteractiveShellWorksAsChild(t *testing.T) {
	pty := startShell(t)
	pty.say(run("PS1=inner-prompt: exec bash --norc -i 2>&0"))
	pty.want("\ninner-prompt:")
	pty.say("sh -c 'echo up-$((40+2)); exec sleep 60'")
	pty.want("\nup-42")
	fmt.Fprint(pty, "\x03")
	pty.want("\ninner-prompt:")
	pty.say("exit")
	pty.want("\nouter-prompt:")
	pty.say("echo outer-$((40+2))")
	pty.want("\nouter-42")
}

// run returns a shell command that starts a wrapper around sh.
func run(script string) string {
	text, _ := json.Marshal(wrapperScript{Args: []string{"sh", "-c", script}})
	return fmt.Sprintf("PROC_ROLE=wrapper PROC_SCRIPT='%s' %s 3>&1 4>/dev/null 5</dev/null", text, os.Args[0])
}

// terminalEnd is the user's end of a terminal.
type terminalEnd struct {
	*os.File
	t     *testing.T
	r     *bufio.Reader
	shell int
}

// startShell starts an interactive bash on a new terminal.
func startShell(t *testing.T) *terminalEnd {
	t.Helper()
	bash, err := exec.LookPath("bash")
	skip.Unless(t, err == nil, "bash")
	pty, tty := ptytest.Open(t)
	cmd := exec.Command(bash, "--norc", "--noprofile", "-i")
	cmd.Env = append(os.Environ(), "PS1=outer-prompt:", "HISTFILE=", "LC_ALL=C", "TERM=dumb")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bury(cmd) })
	e := &terminalEnd{File: pty, t: t, r: bufio.NewReader(pty), shell: cmd.Process.Pid}
	e.want("outer-prompt:")
	return e
}

func (e *terminalEnd) say(line string) { fmt.Fprintln(e, line) }

// want reads until the output contains the text.
func (e *terminalEnd) want(text string) {
	e.t.Helper()
	must(e.SetReadDeadline(time.Now().Add(bound)))
	var got strings.Builder
	for !strings.Contains(got.String(), text) {
		b, err := e.r.ReadByte()
		if err != nil {
			e.t.Fatalf("read %q, %v; want %q", got.String(), err, text)
		}
		got.WriteByte(b)
	}
}

// foreground returns the foreground process group of the terminal.
func foreground(t *testing.T, pty *os.File) (group int) {
	t.Helper()
	conn, err := pty.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	must(conn.Control(func(fd uintptr) { group, err = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) }))
	if err != nil {
		t.Fatal(err)
	}
	return group
}
