package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// TestSurvivor_ProcessOfAnotherUserIsReportedAndAwaited: a user cannot send signals to a
// command that becomes root, for example by sudo. The command is reported at TERM, at KILL, and
// later. Neither the guard nor the wrapper reports its end while it lives.
func TestSurvivor_ProcessOfAnotherUserIsReportedAndAwaited(t *testing.T) {
	live.Test(t)
	skip.Unless(t, os.Getuid() == 0, "root")
	const nobody = 65534
	plain, asRoot := copySelf(t, 0o755), copySelf(t, 0o755|os.ModeSetuid)
	w := startWrapper(t, wrapperScript{Args: []string{"env", "PROC_ROLE=root", asRoot}, Grace: time.Second}, func(cmd *exec.Cmd) {
		cmd.Path = plain
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	})
	w.out.want("up")
	fmt.Fprintln(w.orders, "stop 300ms")
	want := Survivor{Pid: w.child, UID: 0, Denied: true}
	for _, when := range []string{"at TERM", "at KILL", "after the wrapper's own limit"} {
		if r := w.report(); r.Survivor == nil || *r.Survivor != want {
			t.Fatalf("%s: reported %+v, want %+v", when, r, want)
		}
	}
	if find(func(e procEntry) bool { return e.pid == w.guard && !e.dead }) == 0 {
		t.Error("the guard was killed while it waited")
	}
	kill(t, w.child, syscall.SIGKILL)
	w.out.wantEnd(bound)
	if r := w.report(); r.Err != "" || r.Result == nil || r.Result.Code != 137 || !r.Result.Stopped {
		t.Errorf("ended with %+v, %v", r.Result, r.Err)
	}
}

// A container or a chroot may lack /proc.
func TestStart_SaysThatProcIsNotMounted(t *testing.T) {
	before := selfPath
	defer func() { selfPath = before }()
	selfPath = filepath.Join(t.TempDir(), "proc/self/exe")
	guard := Prepare()
	defer guard.Close()
	for _, prepared := range []*Prepared{nil, guard} {
		_, err := Start(Command{Args: []string{"true"}, Prepared: prepared})
		if !errors.Is(err, errNoProc) {
			t.Errorf("%v, want %v", err, errNoProc)
		}
	}
}

// copySelf copies the test binary to a directory in which other users may execute it.
func copySelf(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	must(os.Chmod(filepath.Dir(dir), 0o755))
	path := filepath.Join(dir, "self")
	from, err := os.Open("/proc/self/exe")
	must(err)
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o700)
	must(err)
	_, err = io.Copy(to, from)
	must(err)
	must(to.Close())
	must(os.Chmod(path, mode))
	return path
}
