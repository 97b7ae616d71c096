package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
		if suites, err := find("."); err == nil || !strings.Contains(err.Error(), "e_test.go") {
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

// seeds compiles the tests of testdata/seeds, and returns a function that plays them like
// [goTest], for which they would be linked for each play.
func seeds(t *testing.T) func(args []string, each func(event)) error {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "seeds.test")
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-o", binary, "./testdata/seeds").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return func(args []string, each func(event)) error {
		play := []string{"tool", "test2json", "-p", "seeds", binary, "-test.v=test2json"}
		for _, arg := range args {
			switch name, _, _ := strings.Cut(arg, "="); name {
			case "-count", "-run", "-timeout":
				play = append(play, "-test."+arg[1:])
			}
		}
		return goTest(append(play, args[slices.Index(args, "-args")+1:]...), each)
	}
}

// TestRun_ReportsRealTests plays the tests of testdata/seeds.
func TestRun_ReportsRealTests(t *testing.T) {
	compiled := seeds(t)
	for _, c := range []struct {
		tests, flags string
		by           func(args []string, each func(event)) error // nil is compiled
		err          string                                      // "" is none
		want         []string
		not          string // is not printed, unless it is ""
		starts       int    // of the first test, 0 for any number
	}{
		{tests: "TestInTime", by: goTest, not: "in time", starts: 1},
		{tests: "TestLateOnce", want: []string{"FLAKY testdata/seeds.TestLateOnce: 3s"}, starts: 4},
		{tests: "TestLateOnceInASubtest", want: []string{"FLAKY testdata/seeds.TestLateOnceInASubtest: 3s"}, starts: 4},
		{tests: "TestLateAgain", err: "red: ./testdata/seeds", want: []string{"--- FAIL: TestLateAgain: late: 3s"}, not: "FLAKY", starts: 4},
		{tests: "TestBroken TestInTime", err: "red: ./testdata/seeds", want: []string{"two holders"}, not: "in time", starts: 1},
		{tests: "TestLateAndBroken", err: "red", want: []string{"two holders"}, starts: 1},
		{tests: "TestLateThenBroken", err: "red", want: []string{"two holders"}, starts: 4},
		{tests: "TestLateAndPanics", err: "red", want: []string{"two panics", "goroutine ", "seeds_test.go"}, starts: 1},
		{tests: "TestLateAndHangs", by: goTest, flags: "-timeout=1s", err: "red", want: []string{"test timed out", "goroutine ", "seeds_test.go"}, starts: 1},
		{tests: "TestLateOnce TestLateOnceToo", want: []string{"FLAKY testdata/seeds.TestLateOnce: 3s", "FLAKY testdata/seeds.TestLateOnceToo: 3s"}},
		{tests: "TestLateOnce TestLateOnceInASubtest TestLateOnceToo", err: "3 tests were late once", want: []string{"TestLateOnceToo"}},
		{tests: "TestInTime", by: goTest, flags: "-tags=seeds_broken", err: "red", want: []string{"undefined: missing"}},
	} {
		t.Run(strings.TrimSpace(c.tests+" "+c.flags), func(t *testing.T) {
			t.Parallel()
			starts := filepath.Join(t.TempDir(), "starts-")
			var out strings.Builder
			r := &runner{out: &out, flags: append([]string{"-vet=off"}, strings.Fields(c.flags)...)}
			r.test = func(args []string, each func(event)) error {
				by := c.by
				if by == nil {
					by = compiled
				}
				return by(append(args, "-args", "-seeds.starts="+starts), each)
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
			if c.not != "" && strings.Contains(out.String(), c.not) {
				t.Errorf("it has %q", c.not)
			}
			first, _, _ := strings.Cut(c.tests, " ")
			if b, _ := os.ReadFile(starts + first); c.starts > 0 && len(b) != c.starts {
				t.Errorf("%d starts, want %d", len(b), c.starts)
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}
