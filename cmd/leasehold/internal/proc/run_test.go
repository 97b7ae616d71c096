package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/await"
)

func TestRun_C1_WhatCannotBeExecutedSaysWhyLikeAShell(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name string
		code int
	}{
		{"no-such-command-anywhere", 127},
		{filepath.Join(dir, "missing"), 127},
		{"", 127},
		{write("plain", "exit 0", 0o644), 126},
		{"plain", 126},
		{dir, 126},
		{write("alien", "\x7fALIEN\x00\x00", 0o755), 126},
		{write("lost", "#!"+filepath.Join(dir, "missing")+"\n", 0o755), 126},
	} {
		_, err := Start(Command{Args: []string{c.name}, Env: []string{"PATH=" + dir + ":/usr/bin:/bin"}})
		var failed *StartError
		if !errors.As(err, &failed) || failed.Code() != c.code {
			t.Errorf("%q: %v, want code %d", c.name, err, c.code)
		}
	}
	noChildren(t)
}

func TestRun_AScriptWithoutAnInterpreterLineIsRunBySh(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("script", []byte("exit $1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := Start(Command{Args: []string{"./script", "9"}})
	if err != nil {
		t.Fatal(err)
	}
	if r := wait(t, p); r.Code != 9 {
		t.Errorf("%+v, want code 9", r)
	}
}

func TestRun_C6_ArgumentsAndVariablesReachTheCommandAsTheyAre(t *testing.T) {
	p, out := start(t, Command{
		Args: []string{"sh", "-c", `printf '%s\n' "$@" "$X-$Y"`, "-c", "-v", "--", "", "a b", "\xff\xfe"},
		Env:  append(os.Environ(), "X=old", "Y=\xff", "X=new"), // the last setting counts
	})
	for _, want := range []string{"-v", "--", "", "a b", "\xff\xfe", "new-\xff"} {
		out.want(want)
	}
	wait(t, p)
}

// TestRun_C5_SignalsAreForwardedToTheGroup sends all signals that Go can deliver. The PIPE that
// the kernel sends to the wrapper after a closed connection must not be forwarded.
func TestRun_C5_SignalsAreForwardedToTheGroup(t *testing.T) {
	w := startWrapper(t, wrapperScript{Role: "echo"}, nil)
	w.out.want("up")
	fmt.Fprintln(w.orders, "peer-gone")
	w.report()
	for _, sig := range echoed() {
		if sig != syscall.SIGTERM {
			w.signal(sig.(syscall.Signal))
			w.out.want(signalName(sig.(syscall.Signal)))
		}
	}
	w.signal(syscall.SIGTERM)
	w.out.want("SIGTERM")
	w.out.wantEnd(bound)
	if r := w.report(); *r.Result != (Result{Code: 7}) {
		t.Errorf("%+v, want the child's own code 7", r.Result)
	}
}

// by makes a script of the shell start a process.
func by(script string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) { cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", script, cmd.Path} }
}

func TestRun_C7_AWrapperWithoutStandardInputWorks(t *testing.T) {
	w := startWrapper(t, wrapperScript{Args: []string{"sh", "-c", "cat; exit 5"}}, by(`exec "$0" <&-`))
	w.out.wantEnd(bound)
	if r := w.report(); r.Result.Code != 5 {
		t.Errorf("%+v, want code 5", r.Result)
	}
}

func TestRun_C7_InheritedDescriptorsKeepTheirNumbers(t *testing.T) {
	inner := wrapperScript{Args: []string{"sh", "-c", "cat <&6; cat <&7"}}
	w := startWrapper(t, inner, func(cmd *exec.Cmd) {
		for _, text := range []string{"six\n", "seven\n"} {
			r, in := pipe(t)
			fmt.Fprint(in, text)
			in.Close()
			cmd.ExtraFiles = append(cmd.ExtraFiles, r)
		}
	})
	w.out.want("six")
	w.out.want("seven")
	w.out.wantEnd(bound)
}

func TestRun_C5_WhatTheCallerIgnoresTheChildIgnores(t *testing.T) {
	w := startWrapper(t, wrapperScript{Args: []string{"sh", "-c", "kill -HUP $$; echo lives"}}, by(`trap "" HUP; exec "$0"`))
	w.out.want("lives")
}

func TestRun_ABackgroundCommandGetsNoSignals(t *testing.T) {
	cmd := roleCommand("echo", nil)
	cmd.Background = true
	p, out := start(t, cmd)
	out.want("up")
	kill(t, os.Getpid(), syscall.SIGWINCH)
	p.Signal(syscall.SIGUSR1)
	out.want("SIGUSR1")
}

func TestRun_TheExitCodeSurvivesASignalAtTheLastMoment(t *testing.T) {
	for range 20 {
		p, err := Start(sh("exit 7"))
		if err != nil {
			t.Fatal(err)
		}
		for running := true; running; {
			kill(t, os.Getpid(), syscall.SIGWINCH)
			p.Signal(syscall.SIGCONT) // without effect at the end
			select {
			case <-p.Done():
				running = false
			default:
			}
		}
		if r := wait(t, p); r != (Result{Code: 7}) {
			t.Fatalf("%+v, want code 7", r)
		}
	}
}

func TestRun_ManyCommandsAtOnceDoNotMeddleWithOneAnother(t *testing.T) {
	var all sync.WaitGroup
	for code := range 16 {
		all.Go(func() {
			cmd := sh(fmt.Sprintf("sleep 0.0%d; exit %d", code, code))
			cmd.Background, cmd.Deadline = true, time.Now().Add(time.Hour)
			p, err := Start(cmd)
			if err != nil {
				t.Error(err)
				return
			}
			p.SetDeadline(time.Now().Add(time.Minute))
			p.Signal(syscall.SIGCONT)
			if r, err := p.Wait(); err != nil || r != (Result{Code: code}) {
				t.Errorf("%+v, %v; want code %d", r, err, code)
			}
		})
	}
	all.Wait()
	noChildren(t)
}

func TestRun_WhatTheChildLeavesBehindEndsBeforeWaitReturns(t *testing.T) {
	cmd := sh(`trap "" TERM; setsid sh -c 'echo up; sleep 1000' & read x; exit 3`)
	if _, err := exec.LookPath("setsid"); err != nil {
		cmd = sh(`trap "" TERM; sh -c 'echo up; sleep 1000' & read x; exit 3`)
	}
	in, inW := pipe(t)
	cmd.Stdin, cmd.Grace = in, 100*time.Millisecond
	p, out := start(t, cmd)
	out.want("up")
	inW.Close()
	if r := wait(t, p); r != (Result{Code: 3}) {
		t.Errorf("%+v, want only code 3", r)
	}
	out.wantEnd(bound)
	noChildren(t)
}

func TestRun_WhatEndsByItselfSoonAfterTheChildIsLeftInPeace(t *testing.T) {
	if exitGrace < 100*time.Millisecond {
		t.Errorf("exitGrace is %v, too short for a busy machine to end a process", exitGrace)
	}
	t.Setenv(exitGraceVar, "1m") // a machine may stall for longer than the default
	in, inW := pipe(t)
	// A shell gives commands in the background /dev/null as standard input.
	cmd := sh(`exec 3<&0; (trap "echo disturbed" TERM; read x <&3; echo finished) & exit 0`)
	cmd.Stdin, cmd.Grace = in, time.Second
	p, out := start(t, cmd)
	await.Until(t, func() bool { return syscall.Kill(p.Pid(), 0) != nil }, "the end of the child")
	out.wantNothing(100 * time.Millisecond)
	inW.Close()
	out.want("finished")
	wait(t, p)
}

// noChildren checks that neither a zombie nor a guard is left.
func noChildren(t *testing.T) {
	t.Helper()
	all, err := processes(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.ppid == os.Getpid() {
			t.Errorf("process %d is left", e.pid)
		}
	}
}

func TestSignals_ThatCameBeforeTheStartAreForwarded(t *testing.T) {
	cmd := sh("sleep 60")
	cmd.Signals = make(chan os.Signal, 1)
	cmd.Signals <- syscall.SIGTERM
	p, _ := start(t, cmd)
	if r := wait(t, p); r != (Result{Code: 143, Signal: syscall.SIGTERM}) {
		t.Errorf("%+v", r)
	}
}
