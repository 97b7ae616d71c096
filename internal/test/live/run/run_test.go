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
	f.runs = append(f.runs, fmt.Sprint(dir, " ", names, " ", args[slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-count=") })]))
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
		err      string // "" is no error
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
	write("a/a_test.go", "package a\nfunc TestLive(t *testing.T) { live.Test(t) }\nfunc TestOther(t *testing.T) { other() }\nfunc TestNone(t *testing.T) {}\n")
	write("a/b_test.go", "package a\nfunc TestMore(t *testing.T) {\n\tlive.Test(t)\n\tother()\n}\n")
	write("a/testdata/c_test.go", "package a\nfunc TestData(t *testing.T) { live.Test(t) }\n")
	write("a/b/c_test.go", "package b\n")
	write("a/d_test.go", "package a\nfunc TestLast(t *testing.T) { live.Test(t) }\n")
	t.Chdir(dir)
	suites, err := find(".")
	if err != nil {
		t.Fatal(err)
	}
	if want := "[{./a [TestLive TestMore TestLast]}]"; fmt.Sprint(suites) != want {
		t.Errorf("found %v, want %v", suites, want)
	}
	for _, body := range []string{
		"func TestLate(t *testing.T) { other(); live.Test(t) }", "func helper() { live.Test(t) }",
		"func TestSub(t *testing.T) { t.Run(\"a\", func(t *testing.T) { live.Test(t) }) }",
	} {
		write("b/e_test.go", "package b\n"+body+"\n")
		if suites, err := find("."); err == nil || !strings.Contains(err.Error(), "e_test.go:2") {
			t.Errorf("%s: found %v, %v", body, suites, err)
		}
	}
}

func TestChoose_SelectsTestsByName(t *testing.T) {
	suites := []suite{{"./a", []string{"TestA", "TestB"}}, {"./b", []string{"TestC"}}}
	for flags, want := range map[string]string{
		"-v -short":        "[{./a [TestA TestB]} {./b [TestC]}] [-v -short]",
		"-v -run A -short": "[{./a [TestA]}] [-v -short]",
		"--run=B|C -short": "[{./a [TestB]} {./b [TestC]}] [-short]",
	} {
		chosen, others, err := choose(suites, strings.Fields(flags))
		if got := fmt.Sprint(chosen, " ", others); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", flags, got, err, want)
		}
	}
	if _, _, err := choose(suites, []string{"-run=("}); err == nil {
		t.Error("no error for an invalid expression")
	}
}

// TestRun_ReportsRealTests plays the tests of testdata/seeds by go test.
func TestRun_ReportsRealTests(t *testing.T) {
	for _, c := range []struct {
		tests, flags string
		err          string // "" is none
		want         []string
		starts       int // of the test, 0 for any number
	}{
		{tests: "TestInTime", starts: 1},
		{tests: "TestLateOnce", want: []string{"FLAKY testdata/seeds.TestLateOnce: 3s"}, starts: 4},
		{tests: "TestLateOnceInASubtest", want: []string{"FLAKY testdata/seeds.TestLateOnceInASubtest: 3s"}, starts: 4},
		{tests: "TestLateAgain", err: "red", want: []string{"--- FAIL: TestLateAgain: late: 3s"}, starts: 4},
		{tests: "TestBroken", err: "red", want: []string{"two holders"}, starts: 1},
		{tests: "TestLateAndBroken", err: "red", want: []string{"two holders"}, starts: 1},
		{tests: "TestLateThenBroken", err: "red", want: []string{"two holders"}, starts: 4},
		{tests: "TestLateAndPanics", err: "red", want: []string{"two panics", "goroutine ", "seeds_test.go"}, starts: 1},
		{tests: "TestLateAndHangs", flags: "-timeout=1s", err: "red", want: []string{"test timed out", "goroutine ", "seeds_test.go"}, starts: 1},
		{tests: "TestLateOnce TestLateOnceInASubtest TestLateOnceToo", err: "3 tests were late once", want: []string{"TestLateOnceToo"}},
		{tests: "TestInTime", flags: "-tags=seeds_broken", err: "red", want: []string{"undefined: missing"}},
	} {
		t.Run(strings.TrimSpace(c.tests+" "+c.flags), func(t *testing.T) {
			t.Parallel()
			starts := filepath.Join(t.TempDir(), "starts-")
			var out strings.Builder
			r := &runner{out: &out, flags: append([]string{"-vet=off"}, strings.Fields(c.flags)...)}
			r.test = func(args []string, each func(event)) error {
				return goTest(append(args, "-args", "-seeds.starts="+starts), each)
			}
			err := r.run([]suite{{dir: "./testdata/seeds", tests: strings.Fields(c.tests)}})
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it lacks %q", want)
				}
			}
			if b, _ := os.ReadFile(starts + c.tests); c.starts > 0 && len(b) != c.starts {
				t.Errorf("%d starts, want %d", len(b), c.starts)
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
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
