package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/leasehold-go/leasehold/internal/test/live"
)

const (
	// repeats is how often a late test runs again.
	repeats = 3
	// mostFlaky is how many tests may be late once.
	mostFlaky = 2
)

// runner runs live tests.
type runner struct {
	out   io.Writer
	flags []string // of go test
	// test runs go test with args and passes each event of its output to each.
	test func(args []string, each func(event)) error
	late []lateness
	// ended are the tests of the package in progress that have passed.
	ended map[string]bool
}

// event is a line of the output of go test -json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// lateness is a missed time bound of a test.
type lateness struct {
	dir, test, message string
	failed             bool // the test broke a promise too, and is not repeated
}

// run runs all live tests of the suites, and then the late tests again.
func (r *runner) run(suites []suite) error {
	var red []string
	for _, s := range suites {
		if err := r.suite(s); err != nil {
			red = append(red, s.dir)
		}
	}
	flaky := 0
	var lines []string
	for _, l := range r.late {
		if l.failed {
			continue // red already
		}
		if r.repeat(l) {
			flaky++
			lines = append(lines, fmt.Sprintf("FLAKY %s.%s: %s", strings.TrimPrefix(l.dir, "./"), l.test, l.message))
			continue
		}
		fmt.Fprintf(r.out, "--- FAIL: %s: late: %s\nFAIL\t%s\n", l.test, l.message, l.dir)
		red = append(red, l.dir)
	}
	for _, line := range lines {
		fmt.Fprintln(r.out, line)
	}
	var errs []error
	if len(red) > 0 {
		slices.Sort(red)
		errs = append(errs, fmt.Errorf("red: %s", strings.Join(slices.Compact(red), " ")))
	}
	if flaky > mostFlaky {
		errs = append(errs, fmt.Errorf("%d tests were late once, and %d may be", flaky, mostFlaky))
	}
	return errors.Join(errs...)
}

// suite runs the live tests of a package, prints the output of failed tests, and collects
// late tests.
func (r *runner) suite(s suite) error {
	return r.play(r.args(s.dir, s.tests, 1), func(e event) {
		switch e.Action {
		case "output":
			r.note(s.dir, e)
		case "fail":
			for i, l := range r.late {
				r.late[i].failed = l.failed || l.dir == s.dir && (l.test == e.Test || e.Test == "" && !r.ended[l.test])
			}
		case "pass":
			r.ended[e.Test] = true
		}
	})
}

// play runs go test with args, prints the output of packages and the output of the tests
// that fail or do not end, and passes each event to each.
func (r *runner) play(args []string, each func(event)) error {
	output := make(map[string]*strings.Builder) // by test
	r.ended = make(map[string]bool)
	return r.test(args, func(e event) {
		each(e)
		switch e.Action {
		case "build-output":
			fmt.Fprint(r.out, e.Output)
		case "output":
			if e.Test == "" {
				fmt.Fprint(r.out, e.Output)
				return
			}
			if output[e.Test] == nil {
				output[e.Test] = new(strings.Builder)
			}
			output[e.Test].WriteString(e.Output)
		case "fail":
			for _, name := range slices.Sorted(maps.Keys(output)) {
				if e.Test == "" || e.Test == name { // of a package: the tests that did not end
					fmt.Fprint(r.out, output[name])
					delete(output, name)
				}
			}
		case "pass", "skip":
			delete(output, e.Test)
		}
	})
}

// note collects a missed time bound, one for each test.
func (r *runner) note(dir string, e event) {
	_, message, late := strings.Cut(e.Output, live.LateMark)
	if !late {
		return
	}
	test, _, _ := strings.Cut(e.Test, "/")
	if !slices.ContainsFunc(r.late, func(l lateness) bool { return l.dir == dir && l.test == test }) {
		r.late = append(r.late, lateness{dir: dir, test: test, message: strings.TrimSpace(message)})
	}
}

// repeat reports whether a late test is in time in all of the repeated runs.
func (r *runner) repeat(l lateness) bool {
	inTime := true
	fmt.Fprintf(r.out, "late, and repeated: %s %s: %s\n", l.dir, l.test, l.message)
	err := r.play(r.args(l.dir, []string{l.test}, repeats), func(e event) {
		inTime = inTime && !strings.Contains(e.Output, live.LateMark)
	})
	return err == nil && inTime
}

// args returns the arguments of go test for some tests of a package.
func (r *runner) args(dir string, tests []string, count int) []string {
	args := append([]string{"test", "-json"}, r.flags...)
	return append(args, "-p=1", fmt.Sprint("-count=", count), "-run=^("+strings.Join(tests, "|")+")$", dir)
}

// goTest runs go test.
func goTest(args []string, each func(event)) error {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), live.Env+"="+live.Runner)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(pipe)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				e = event{Action: "output", Output: string(line)}
			}
			each(e)
		}
		if errors.Is(err, io.EOF) {
			return cmd.Wait()
		}
		if err != nil {
			return errors.Join(err, cmd.Wait())
		}
	}
}
