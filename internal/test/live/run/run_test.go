package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
)

// fake plays go test: each test has outcomes, one per run of go test.
type fake struct {
	outcomes map[string][]string // ok, late or fail
	runs     []string
}

func (f *fake) test(args []string, each func(event)) error {
	dir := args[len(args)-1]
	i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-run=") })
	names := strings.Split(strings.Trim(strings.TrimPrefix(args[i], "-run="), "^()$"), "|")
	f.runs = append(f.runs, fmt.Sprint(dir, " ", names, " ", args[3]))
	var failed error
	for _, name := range names {
		outcome := f.outcomes[name][0]
		f.outcomes[name] = f.outcomes[name][1:]
		each(event{Action: "run", Test: name})
		each(event{Action: "output", Test: name, Output: "    x_test.go:1: output of " + name + "\n"})
		action := "pass"
		switch outcome {
		case "late":
			each(event{Action: "output", Test: name + "/row", Output: "    x_test.go:7: " + live.LateMark + "3s, want 1s\n"})
		case "fail":
			action, failed = "fail", errors.New("exit status 1")
		}
		each(event{Action: action, Test: name})
	}
	return failed
}

func TestRun_TellsPromisesFromPace(t *testing.T) {
	for _, c := range []struct {
		name     string
		outcomes map[string][]string
		err      string // "" is none
		want     []string
		not      string
	}{
		{name: "all in time", outcomes: map[string][]string{"TestA": {"ok"}, "TestB": {"ok"}}, not: "output"},
		{name: "a broken promise", outcomes: map[string][]string{"TestA": {"fail"}, "TestB": {"ok"}}, err: "red: ./p", want: []string{"output of TestA"}, not: "TestB"},
		{name: "late once", outcomes: map[string][]string{"TestA": {"late", "ok"}, "TestB": {"ok"}}, want: []string{"FLAKY p.TestA: 3s, want 1s"}},
		{name: "late again", outcomes: map[string][]string{"TestA": {"late", "late"}, "TestB": {"ok"}}, err: "red: ./p", want: []string{"--- FAIL: TestA: late: 3s, want 1s"}, not: "FLAKY"},
		{name: "late, then broken", outcomes: map[string][]string{"TestA": {"late", "fail"}, "TestB": {"ok"}}, err: "red: ./p"},
		{name: "two late once", outcomes: map[string][]string{"TestA": {"late", "ok"}, "TestB": {"late", "ok"}}, want: []string{"TestA", "TestB"}},
		{
			name: "three late once", err: "3 tests were late once",
			outcomes: map[string][]string{"TestA": {"late", "ok"}, "TestB": {"late", "ok"}, "TestC": {"late", "ok"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			f := &fake{outcomes: c.outcomes}
			s := suite{dir: "./p"}
			for name := range c.outcomes {
				s.tests = append(s.tests, name)
			}
			err := (&runner{out: &out, test: f.test}).run([]suite{s})
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("printed %q, want %q", out.String(), want)
				}
			}
			if c.not != "" && strings.Contains(out.String(), c.not) {
				t.Errorf("printed %q with %q", out.String(), c.not)
			}
			if again := slices.Index(f.runs, "./p [TestA] -count=3"); (again >= 0) != strings.Contains(c.name, "late") {
				t.Errorf("runs: %q", f.runs)
			}
		})
	}
}

func TestFind_ReturnsTestsThatAreMarked(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a/a_test.go", "package a\nfunc TestLive(t *testing.T) { live.Test(t) }\nfunc TestOther(t *testing.T) { other() }\nfunc helper() { live.Test(t) }\nfunc TestNone(t *testing.T) {}\n")
	write("a/b_test.go", "package a\nfunc TestMore(t *testing.T) {\n\tlive.Test(t)\n\tother()\n}\n")
	write("a/testdata/c_test.go", "package a\nfunc TestData(t *testing.T) { live.Test(t) }\n")
	write("b/d_test.go", "package b\nfunc TestLate(t *testing.T) { other(); live.Test(t) }\n")
	t.Chdir(dir)
	suites, err := find(".")
	if err != nil {
		t.Fatal(err)
	}
	if want := "[{./a [TestLive TestMore]}]"; fmt.Sprint(suites) != want {
		t.Errorf("found %v, want %v", suites, want)
	}
}

// TestGoTest_RunsTests plays one real test of package live, with its environment.
func TestGoTest_RunsTests(t *testing.T) {
	var actions []string
	err := goTest([]string{"test", "-json", "-run=^TestLate_", "-count=1", ".."}, func(e event) {
		if e.Test != "" && e.Action != "output" {
			actions = append(actions, e.Test+" "+e.Action)
		}
	})
	if err != nil || !slices.Contains(actions, "TestLate_FailsNoTestOfTheRunner pass") {
		t.Errorf("%v: %q", err, actions)
	}
}
