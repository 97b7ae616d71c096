//go:build linux || darwin

package cli_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/cli"
	"github.com/leasehold-go/leasehold/internal/test/address"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// bound is the time limit of operations without their own limit.
const bound = time.Minute

// raceOptions turn off the sleep of a second before the exit of a process with the
// race detector.
const raceOptions = "atexit_sleep_ms=0"

// The test binary is also the command, and the guard that the command starts.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", raceOptions)
	if filepath.Base(os.Args[0]) != "leasehold" {
		// Under nohup a child of the tests would inherit an ignored SIGHUP, and in the
		// background of a script an ignored SIGINT; the command would keep ignoring
		// them.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		if signal.Ignored(syscall.SIGINT) {
			signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
		}
		// Most tests wait for the end of a lease, and the live tests wait longest.
		flag.Parse()
		parallel := "5"
		if os.Getenv(live.Env) != "" {
			parallel = "10"
		}
		if err := flag.Set("test.parallel", parallel); err != nil {
			panic(err)
		}
	}
	testscript.Main(tests{m}, map[string]func(){
		"leasehold": func() { // as in cmd/leasehold
			err := cli.Run(os.Args[1:])
			cli.Die(err)
			os.Exit(cli.ExitCode(err))
		},
	})
}

// tests are the tests of the package. With -short and the race detector they run a command that
// was built without the detector and without the stores with large clients, because the stories start
// several hundred processes, and detector and clients take most of their time. `make test-long` uses
// all of the command with the detector, and `make live` without it.
type tests struct{ *testing.M }

func (t tests) Run() int {
	if skip.Race && testing.Short() {
		path, err := exec.LookPath("leasehold")
		if err == nil {
			err = build(path)
		}
		if err != nil {
			panic(err)
		}
	}
	return t.M.Run()
}

// build replaces testscript's copy of the test binary by the command.
func build(path string) error {
	if err := os.Remove(path); err != nil { // it may be a link
		return err
	}
	out, err := exec.Command("go", "build", "-tags=small", "-ldflags=-s -w", "-o", path, "../..").CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// stories returns the files of the stories to run on a store. With -short and on Redis, these
// are only the stories that skip a directory.
func stories(t *testing.T, store string) (files []string) {
	t.Helper()
	all, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if store == "file" || !testing.Short() || strings.Contains(string(text), "\n[file] skip ") {
			files = append(files, file)
		}
	}
	return files
}

// TestStories runs every story on a directory, and at night on a Redis server: the command
// behaves the same on both. A story that needs Redis always runs there.
func TestStories(t *testing.T) {
	deadline, limited := t.Deadline()
	if limited {
		deadline = deadline.Add(-time.Minute)
	}
	for _, store := range []string{"file", "redis"} {
		t.Run(store, func(t *testing.T) {
			server := ""
			if store == "redis" {
				server = redistest.Start(t).URL()
			}
			params := storyParams(func(env *testscript.Env) string {
				if server == "" {
					return "file://" + env.WorkDir + "/.locks"
				}
				return server + "?prefix=" + filepath.Base(env.WorkDir) + ":" // stories share the server, and must not share locks
			})
			params.Files, params.Deadline = stories(t, store), deadline // a story that hangs fails with its log
			params.Condition = func(cond string) (bool, error) { return cond == store, nil }
			testscript.Run(t, params)
		})
	}
}

// storyParams returns the parameters of stories on the store with the URL that store returns.
func storyParams(store func(*testscript.Env) string) testscript.Params {
	return testscript.Params{
		Setup: func(env *testscript.Env) error {
			env.Setenv("LEASEHOLD_STORE", store(env))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", raceOptions)
			script := filepath.Join(env.WorkDir, "command")
			if _, err := os.Stat(script); err == nil {
				return os.Chmod(script, 0o755)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": code, "waitfor": waitfor, "waitline": waitline, "sendsig": sendsig,
			"serving": serving, "waiting": waiting, "setkey": setkey, "address": reserve,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	}
}

// code runs a command and checks its exit code: code 75 leasehold run …
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command [arg...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got, err := 0, ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// waitfor waits until files exist.
func waitfor(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		eventually(ts, func() bool {
			_, err := os.Stat(ts.MkAbs(name))
			return err == nil != neg
		}, name)
	}
}

// waitline waits until a file has a text: waitline FILE TEXT
func waitline(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitline file text")
	}
	eventually(ts, func() bool {
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && strings.Contains(string(b), args[1])
	}, args)
}

// serving waits until a service has logged its URL to a file, and sets a
// variable to it: serving FILE VARIABLE
func serving(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: serving file variable")
	}
	waitline(ts, false, []string{args[0], "msg=serving"})
	_, rest, _ := strings.Cut(ts.ReadFile(args[0]), "url=")
	url, _, _ := strings.Cut(rest, " ")
	ts.Setenv(args[1], url)
}

// reserve sets a variable to a loopback address without a listener, which is reserved: no other
// test and no connection gets it: address VARIABLE
func reserve(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: address variable")
	}
	l, err := address.Listen()
	ts.Check(err)
	ts.Setenv(args[0], l.Addr().String())
	ts.Check(l.Close())
}

// waiting waits until a lock has the given numbers of waiters and holders; HOLDERS is 1
// by default: waiting NAME WAITERS [HOLDERS]
func waiting(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: waiting name waiters [holders]")
	}
	holders := append(args, "1")[2]
	eventually(ts, func() bool {
		var lock struct{ Holders, Waiters []struct{} }
		ts.Check(ts.Exec("leasehold", "inspect", "--json", args[0]))
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &lock))
		return strconv.Itoa(len(lock.Waiters)) == args[1] && strconv.Itoa(len(lock.Holders)) == holders
	}, args)
}

// setkey sets a plain key of the Redis server for a minute, as another library would:
// setkey NAME VALUE
func setkey(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: setkey name value")
	}
	u, err := url.Parse(ts.Getenv("LEASEHOLD_STORE"))
	ts.Check(err)
	ts.Check(ts.Exec("redis-cli", "-h", u.Hostname(), "-p", u.Port(), "set", u.Query().Get("prefix")+args[0], args[1], "px", "60000"))
}

// sendsig sends a signal to the process with the id in a file: sendsig TERM FILE
func sendsig(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sendsig NAME file")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[1])))
	ts.Check(err)
	signals := map[string]syscall.Signal{"HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "TERM": 15}
	ts.Check(syscall.Kill(pid, signals[args[0]]))
}
