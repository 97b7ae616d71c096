// Command mutate changes conditions and constants of the sources that the promises depend
// on, one at a time, and runs the tests that should fail.
//
//	go run ./internal/test/mutate [flags] [target ...]
//
// A change that no test notices is printed as SURVIVED, unless survivors.txt has the reason
// why no test can notice it. The sources are not modified: the go command reads the changed
// file through an overlay. Each change is built and tested on its own, which takes seconds: -part
// tries a part of the changes, the same part every time.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/mutate/source"
)

// target is a set of files to change, and the tests that should fail.
type target struct {
	name  string
	files []string // patterns, from the top of the repository
	// programs are the packages of the tests, the nearest first. A pattern behind a space
	// selects the tests to run.
	programs []string
}

var targets = []*target{
	{
		name: "room", files: []string{"internal/room/*.go"},
		programs: []string{"./internal/room", "./driver/memdriver", "./driver/roomdriver", "./internal/redisroom Microscope", "./driver/filedriver", "./internal/test/library", "./internal/test/explore"},
	},
	{
		name: "timing", files: []string{"internal/timing/*.go"},
		programs: []string{"./internal/timing", "./internal/session", "./internal/test/library", "./driver/quorumdriver", "./driver/httpdriver", "./server", "./internal/test/matrix"},
	},
	{
		name: "session", files: []string{"internal/session/*.go"},
		programs: []string{"./internal/session", "./internal/test/library", "./driver/httpdriver", "./server", "./internal/test/matrix"},
	},
	{
		name: "line", files: []string{"internal/line/*.go"},
		programs: []string{"./internal/test/library", "./internal/test/matrix"},
	},
	{
		name: "root", files: []string{"*.go"},
		programs: []string{"./internal/test/library", ".", "./internal/test/locktest", "./internal/test/matrix"},
	},
	{
		name: "check", files: []string{"internal/check/*.go"},
		programs: []string{"./internal/check", "./internal/test/library"},
	},
	{
		name: "roomdriver", files: []string{"driver/roomdriver/*.go"},
		programs: []string{"./driver/roomdriver", "./driver/memdriver", "./driver/postgresdriver"},
	},
	{
		name: "quorum", files: []string{"driver/quorumdriver/*.go"},
		programs: []string{"./driver/quorumdriver", "./internal/test/explore"},
	},
	{
		name: "postgres", files: []string{"driver/postgresdriver/*.go"},
		programs: []string{"./driver/postgresdriver"},
	},
	{
		name: "file", files: []string{"driver/filedriver/*.go"},
		programs: []string{"./driver/filedriver"},
	},
	{
		name: "http", files: []string{"driver/httpdriver/*.go"},
		programs: []string{"./driver/httpdriver"},
	},
	{
		name: "server", files: []string{"server/*.go"},
		programs: []string{"./server"},
	},
}

var (
	list    = flag.Bool("list", false, "only print the changes")
	part    = flag.Float64("part", 1, "the part of the changes to try, drawn by lot")
	only    = flag.String("only", "", "a regular expression of the changes to try")
	workers = flag.Int("p", 2, "how many changes are tried at a time")
	until   = flag.Duration("for", 0, "begin no change after this time")
)

func main() {
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1) //nolint:forbidigo // this is a program
	}
}

// out receives the results.
var out = os.Stdout

func run(names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(targets, func(t *target) bool { return t.name == name }) {
			return fmt.Errorf("no target %q", name)
		}
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	reasons, err := source.Reasons()
	if err != nil {
		return err
	}
	r := &round{begin: time.Now(), reasons: reasons, opened: make(map[string]func() (*program, error))}
	for _, t := range targets {
		if len(names) > 0 && !slices.Contains(names, t.name) {
			continue
		}
		mutants, err := t.mutants()
		if err != nil {
			return err
		}
		mutants = slices.DeleteFunc(mutants, func(m source.Mutant) bool { return !pattern.MatchString(m.String()) })
		mutants = draw(mutants, *part)
		if *list {
			for _, m := range mutants {
				fmt.Fprintln(out, m)
			}
			fmt.Fprintf(out, "%s: %d changes\n", t.name, len(mutants))
			continue
		}
		if err := r.try(t, mutants); err != nil {
			return err
		}
	}
	if r.survived > 0 {
		return fmt.Errorf("%d changes survived", r.survived)
	}
	return nil
}

// draw returns the given part of the mutants, in their order.
func draw(mutants []source.Mutant, part float64) []source.Mutant {
	rnd := rand.New(rand.NewPCG(1, 0))
	return slices.DeleteFunc(mutants, func(source.Mutant) bool { return rnd.Float64() >= part })
}

// mutants returns the changes of a target, in the order of their positions.
func (t *target) mutants() (all []source.Mutant, err error) {
	for _, pattern := range t.files {
		files, err := source.Files(pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			some, err := source.Go(file, string(text))
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: found no changes: run this from the top of the repository", t.name)
	}
	return all, nil
}

// round is one run over all chosen changes.
type round struct {
	begin    time.Time
	reasons  map[string]string
	survived int

	mu     sync.Mutex
	opened map[string]func() (*program, error)
}

// Outcomes of a change, in addition to "caught by" a test.
const (
	survived   = "SURVIVED"
	unbuilt    = "does not build"
	equivalent = "changes nothing"
)

// try tries the changes of a target, a few at a time, and counts their outcomes.
func (r *round) try(t *target, mutants []source.Mutant) error {
	var failed error
	counts := make(map[string]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan source.Mutant)
	for range *workers {
		wg.Go(func() {
			for m := range next {
				start := time.Now()
				outcome, err := r.judge(t, m)
				mu.Lock()
				failed = errors.Join(failed, err)
				kind, _, _ := strings.Cut(outcome, " by ")
				counts[kind]++
				fmt.Fprintf(out, "%s\t%s\t%v\n", outcome, m, time.Since(start).Round(time.Millisecond))
				mu.Unlock()
			}
		})
	}
	left := len(mutants)
	for _, m := range mutants {
		if *until == 0 || time.Since(r.begin) < *until {
			next <- m
			left--
		}
	}
	close(next)
	wg.Wait()
	caught := counts["caught"]
	able := caught + counts[survived]
	fmt.Fprintf(out, "%s: %d caught of %d that can be (%.1f %%), %d survived, %d change nothing, %d do not build, %d are not tried\n",
		t.name, caught, able, 100*float64(caught)/float64(max(able, 1)), counts[survived], counts[equivalent], counts[unbuilt], left)
	r.survived += counts[survived]
	return failed
}

// judge runs the tests of a target with a change, the nearest first, until a test fails. If
// survivors.txt has a reason why no test can fail, the nearest are enough to confirm it.
func (r *round) judge(t *target, m source.Mutant) (string, error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	replaced, err := overlay(dir, m)
	if err != nil {
		return "", err
	}
	_, known := r.reasons[m.Key()]
	for _, name := range t.programs {
		p, err := r.open(name)
		if err != nil {
			return "", err
		}
		outcome := p.test("-overlay=" + replaced)
		switch {
		case outcome == unbuilt:
			return unbuilt, nil
		case outcome != "" && known:
			return outcome + ", although survivors.txt has a reason why it cannot be", nil
		case outcome != "":
			return outcome, nil
		case known:
			return equivalent, nil
		}
	}
	return survived, nil
}

// overlay writes the changed file to dir, with a file that makes the go command read it instead of
// the original, and returns the path of that file.
func overlay(dir string, m source.Mutant) (string, error) {
	original, err := filepath.Abs(m.File)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(m.File))
	if err := os.WriteFile(changed, []byte(m.Changed()), 0o644); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o644)
}

// program is the tests of a package.
type program struct {
	args  []string      // of go test
	limit time.Duration // of a run
}

// open runs the tests of a package without a change, once.
func (r *round) open(name string) (*program, error) {
	r.mu.Lock()
	open := r.opened[name]
	if open == nil {
		open = sync.OnceValues(func() (*program, error) { return newProgram(name) })
		r.opened[name] = open
	}
	r.mu.Unlock()
	return open()
}

func newProgram(name string) (*program, error) {
	pkg, pattern, _ := strings.Cut(name, " ")
	p := &program{args: []string{"-run=" + pattern, pkg}, limit: 9 * time.Minute}
	deps, err := exec.Command("go", "list", "-deps", "-test", pkg).Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", pkg, err)
	}
	if strings.Contains(string(deps), "pgregory.net/rapid\n") {
		p.args = append(p.args, "-rapid.nofailfile") // failures under a change must not be replayed later
	}
	start := time.Now()
	if outcome := p.test(); outcome != "" {
		return nil, fmt.Errorf("%s fails without a change: %s", name, outcome)
	}
	p.limit = 10*time.Second + 4*time.Since(start)
	return p, nil
}

var failLine = regexp.MustCompile(`(?m)^--- FAIL: (\S+) `)

// test runs the tests, and returns an empty outcome if none fails.
func (p *program) test(flags ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	fixed := []string{"test", "-short", "-count=1", "-failfast", "-vet=off", "-timeout=" + p.limit.String()}
	cmd := exec.CommandContext(ctx, "go", slices.Concat(fixed, flags, p.args)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	said, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	text := string(said)
	test := failLine.FindStringSubmatch(text)
	switch {
	case strings.Contains(text, "[build failed]"), strings.Contains(text, "[setup failed]"):
		return unbuilt
	case test != nil:
		return "caught by the test " + test[1]
	case ctx.Err() != nil, strings.Contains(text, "test timed out after"):
		return "caught by the time limit of " + p.args[1]
	}
	return "caught by a panic of " + p.args[1]
}
