package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/mutate/source"
	"github.com/leasehold-go/leasehold/internal/test/mutate/swap"
)

// bench has test programs that are built once with all changes. Each change is switched on
// by its number.
type bench struct {
	dir     string
	overlay string
	numbers map[string]int // of a change, by its String
	unbuilt map[string]bool
}

// program is the compiled tests of a package.
type program struct {
	pkg, file string
	run       string  // the pattern of the tests to run
	rapid     bool    // it has the flags of package rapid
	units     []*unit // the fastest first
}

// unit is a test, or a subtest, that is run alone.
type unit struct {
	program *program
	name    string // of the test, and of the subtest behind a slash
	took    time.Duration
	notices map[int]bool // the changes that alter a value during the unit
}

// newBench builds the tests of targets, and runs each without a change.
func newBench(all []*target, dir string) (*bench, error) {
	b := &bench{dir: dir, numbers: make(map[string]int), unbuilt: make(map[string]bool)}
	texts := make(map[string]string)
	next := 1
	for _, t := range all {
		s, err := source.NewSchema(t.dir, next, t.constants...)
		if err != nil {
			return nil, err
		}
		for n, m := range s.Numbered {
			b.numbers[m.String()] = n
			next = max(next, n+1)
		}
		for _, m := range s.Unbuilt {
			b.unbuilt[m.String()] = true
		}
		maps.Copy(texts, s.Texts)
	}
	var err error
	b.overlay, err = overlay(dir, texts)
	return b, err
}

// open builds the tests of a package, and runs each without a change.
func (b *bench) open(name string) (*program, error) {
	pkg, pattern, _ := strings.Cut(name, " ")
	p := &program{pkg: pkg, run: pattern, file: filepath.Join(b.dir, strings.ReplaceAll(strings.Trim(pkg, "./"), "/", "_")+".test")}
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+b.overlay, "-o", p.file, pkg).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", pkg, err, out)
	}
	binary, err := os.ReadFile(p.file)
	if err != nil {
		return nil, err
	}
	p.rapid = bytes.Contains(binary, []byte("rapid.nofailfile"))
	begin := time.Now()
	if err := b.learn(p); err != nil {
		return nil, err
	}
	slices.SortStableFunc(p.units, func(a, b *unit) int { return int(a.took - b.took) })
	fmt.Fprintf(out, "%s: %d tests in %v\n", name, len(p.units), time.Since(begin).Round(time.Second))
	return p, nil
}

// split is the duration from which a test's subtests are run as separate units.
const split = time.Second

// learn runs each test of a program, and records which changes alter a value in it.
func (b *bench) learn(p *program) error {
	pattern := p.run
	if pattern == "" {
		pattern = "."
	}
	list, err := b.command(context.Background(), p, nil, "-test.list", pattern).Output()
	if err != nil {
		return fmt.Errorf("%s: %w", p.pkg, err)
	}
	for name := range strings.Lines(string(list)) {
		name = strings.TrimSpace(name)
		if strings.HasPrefix(name, "Benchmark") || strings.HasPrefix(name, "ok ") {
			continue
		}
		u, parts := b.try(&unit{program: p, name: name})
		if u == nil {
			fmt.Fprintf(out, "%s %s fails without a change, and is left out\n", p.pkg, name)
			continue
		}
		if u.took < split || len(parts) < 2 {
			p.units = append(p.units, u)
			continue
		}
		for _, part := range parts {
			if u, _ := b.try(&unit{program: p, name: name + "/" + part}); u != nil {
				p.units = append(p.units, u)
			}
		}
	}
	return nil
}

var partLine = regexp.MustCompile(`(?m)^    --- PASS: [^/\s]+/(\S+) \(`)

// try runs a unit without a change. It returns nil if it fails.
func (b *bench) try(u *unit) (_ *unit, parts []string) {
	notes := filepath.Join(b.dir, "notes")
	_ = os.Remove(notes)
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	said, err := b.command(ctx, u.program, []string{swap.Notes + "=" + notes}, "-test.v", "-test.run", u.pattern()).CombinedOutput()
	if err != nil {
		return nil, nil
	}
	u.took, u.notices = time.Since(start), make(map[int]bool)
	text, err := os.ReadFile(notes)
	if err != nil {
		return u, nil
	}
	for line := range strings.Lines(string(text)) {
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			u.notices[n] = true
		}
	}
	for _, m := range partLine.FindAllStringSubmatch(string(said), -1) {
		parts = append(parts, m[1])
	}
	return u, parts
}

// pattern returns the -run pattern that selects only the unit.
func (u *unit) pattern() string {
	parts := strings.Split(u.name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

func (b *bench) command(ctx context.Context, p *program, env []string, args ...string) *exec.Cmd {
	args = append([]string{"-test.short", "-test.failfast"}, args...)
	if p.rapid {
		args = append(args, "-rapid.nofailfile") // failures under a change must not be replayed later
	}
	cmd := exec.CommandContext(ctx, p.file, args...)
	cmd.Dir = p.pkg
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	return cmd
}

// steps are time limits: the units of a mutant run in rounds, the fastest first.
var steps = []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Hour}

// judge runs the units of a program that a change affects, the fastest first, until one
// fails. It returns the outcome, and the number of affected units.
func (b *bench) judge(p *program, n int) (outcome string, shows int) {
	left := slices.DeleteFunc(slices.Clone(p.units), func(u *unit) bool { return !u.notices[n] || *longest > 0 && u.took > *longest })
	shows = len(left)
	for _, step := range steps {
		var group []*unit
		for len(left) > 0 && left[0].took <= step {
			group = append(group, left[0])
			left = left[1:]
		}
		if outcome := b.runAll(group, n); outcome != "" {
			return outcome, shows
		}
	}
	return "", shows
}

var failLine = regexp.MustCompile(`(?m)^--- FAIL: (\S+) `)

// runAll runs units of one program with a change. It returns the unit that caught it, or
// "" if no unit did.
func (b *bench) runAll(units []*unit, n int) string {
	for len(units) > 0 {
		failed, how := b.runs(units, n)
		if how == "" {
			return ""
		}
		suspects := units
		if failed != "" {
			suspects = slices.DeleteFunc(slices.Clone(units), func(u *unit) bool {
				top, _, _ := strings.Cut(u.name, "/")
				return top != failed
			})
		}
		// A unit that also fails without the change has not caught it.
		if _, without := b.runs(suspects, 0); without == "" {
			return "caught by " + how + units[0].program.pkg + " " + failed
		}
		units = slices.DeleteFunc(slices.Clone(units), func(u *unit) bool { return slices.Contains(suspects, u) })
	}
	return ""
}

// runs runs units, and returns the failed unit and its kind of failure.
func (b *bench) runs(units []*unit, n int) (failed, how string) {
	var patterns []string
	var took time.Duration
	for _, u := range units {
		patterns = append(patterns, u.pattern())
		took += u.took
	}
	limit := 3*time.Second + 4*took
	ctx, cancel := context.WithTimeout(context.Background(), limit+5*time.Second)
	defer cancel()
	cmd := b.command(ctx, units[0].program, []string{swap.Number + "=" + strconv.Itoa(n)},
		"-test.run", strings.Join(patterns, "|"), "-test.timeout", limit.String())
	said, err := cmd.CombinedOutput()
	if err == nil {
		return "", ""
	}
	if m := failLine.FindSubmatch(said); m != nil {
		return string(m[1]), "the test "
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || bytes.Contains(said, []byte("test timed out after")) {
		return "", "the time limit of "
	}
	return "", "a panic of "
}
