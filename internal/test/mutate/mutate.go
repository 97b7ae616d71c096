// Command mutate changes conditions and constants of the sources that the promises depend
// on, one at a time, and runs the tests that should fail.
//
//	go run ./internal/test/mutate [flags] [target ...]
//
// A change that no test notices is printed as SURVIVED, unless survivors.txt has the reason
// why no test can notice it. The sources are not modified: the go command reads the changed
// file through an overlay.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
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
	dir   string   // of the package
	// constants are constants that must stay constant because another package needs that.
	constants []string
	// programs are the packages of the tests, the nearest first. A pattern behind a space
	// selects the tests to run.
	programs []string
}

var targets = []*target{
	{
		name: "room", dir: "internal/room", files: []string{"internal/room/*.go"}, constants: []string{"Never"},
		programs: []string{"./internal/room", "./driver/memdriver", "./driver/roomdriver", "./internal/redisroom Microscope", "./driver/filedriver", "./internal/test/library", "./internal/test/explore"},
	},
	{
		name: "timing", dir: "internal/timing", files: []string{"internal/timing/*.go"}, constants: []string{"ConfirmWindow"},
		programs: []string{"./internal/timing", "./internal/session", "./internal/test/library", "./driver/quorumdriver", "./driver/httpdriver", "./server", "./internal/test/explore"},
	},
	{
		name: "session", dir: "internal/session", files: []string{"internal/session/*.go"},
		programs: []string{"./internal/session", "./internal/test/library", "./internal/test/explore", "./driver/httpdriver", "./server"},
	},
	{
		name: "line", dir: "internal/line", files: []string{"internal/line/*.go"},
		programs: []string{"./internal/test/library", "./internal/test/matrix"},
	},
	{
		name: "root", dir: ".", files: []string{"*.go"},
		programs: []string{"./internal/test/library", ".", "./internal/test/locktest", "./internal/test/matrix"},
	},
	{
		name: "check", dir: "internal/check", files: []string{"internal/check/*.go"}, constants: []string{"MaxKey", "MaxOwner", "MaxReason", "MinTTL", "MaxTTL"},
		programs: []string{"./internal/check", "./internal/test/library"},
	},
	{
		name: "roomdriver", dir: "driver/roomdriver", files: []string{"driver/roomdriver/*.go"},
		programs: []string{"./driver/roomdriver", "./driver/memdriver", "./driver/postgresdriver"},
	},
	{
		name: "quorum", dir: "driver/quorumdriver", files: []string{"driver/quorumdriver/*.go"},
		programs: []string{"./driver/quorumdriver", "./internal/test/explore"},
	},
	{
		name: "postgres", dir: "driver/postgresdriver", files: []string{"driver/postgresdriver/*.go"},
		programs: []string{"./driver/postgresdriver"},
	},
	{
		name: "file", dir: "driver/filedriver", files: []string{"driver/filedriver/*.go"},
		programs: []string{"./driver/filedriver"},
	},
	{
		name: "http", dir: "driver/httpdriver", files: []string{"driver/httpdriver/*.go"},
		programs: []string{"./driver/httpdriver"},
	},
	{
		name: "server", dir: "server", files: []string{"server/*.go"},
		programs: []string{"./server"},
	},
}

var (
	list    = flag.Bool("list", false, "only print the changes")
	part    = flag.Float64("part", 1, "the part of the changes to try, drawn by lot")
	seed    = flag.Uint64("seed", 1, "of the lot")
	only    = flag.String("only", "", "a regular expression of the changes to try")
	report  = flag.String("report", "", "append results to this file, and skip the changes in it")
	workers = flag.Int("p", 2, "how many changes are tried at a time")
	longest = flag.Duration("longest", 0, "leave out tests that take longer, for a first look")
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
	chosen := slices.DeleteFunc(slices.Clone(targets), func(t *target) bool { return len(names) > 0 && !slices.Contains(names, t.name) })
	drawn := make(map[*target][]source.Mutant)
	for _, t := range chosen {
		mutants, err := t.mutants()
		if err != nil {
			return err
		}
		mutants = slices.DeleteFunc(mutants, func(m source.Mutant) bool { return !pattern.MatchString(m.String()) })
		drawn[t] = draw(mutants, *part, *seed)
		if *list {
			for _, m := range drawn[t] {
				fmt.Fprintln(out, m)
			}
			fmt.Fprintf(out, "%s: %d changes\n", t.name, len(drawn[t]))
		}
	}
	if *list {
		return nil
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := newBench(chosen, dir)
	if err != nil {
		return err
	}
	r := &round{bench: b, begin: time.Now(), reasons: reasons, counts: make(map[*target]*count)}
	if r.done, err = readReport(); err != nil {
		return err
	}
	for _, t := range chosen {
		r.counts[t] = new(count)
		for _, m := range drawn[t] {
			r.left = append(r.left, &mutant{Mutant: m, target: t})
		}
	}
	return r.try(chosen)
}

// draw returns the given part of the mutants, in their order.
func draw(mutants []source.Mutant, part float64, seed uint64) []source.Mutant {
	rnd := rand.New(rand.NewPCG(seed, 0))
	return slices.DeleteFunc(mutants, func(source.Mutant) bool { return rnd.Float64() >= part })
}

// count has the outcomes of the changes of a target.
type count struct{ tried, unbuilt, killed, equivalent, survived int }

func (c *count) String() string {
	able := c.killed + c.survived
	return fmt.Sprintf("%d tried, %d caught of %d that can be (%.1f %%), %d survived, %d change nothing; %d more do not build",
		c.tried, c.killed, able, 100*float64(c.killed)/float64(max(able, 1)), c.survived, c.equivalent, c.unbuilt)
}

// mutant is a change that no test has caught yet.
type mutant struct {
	source.Mutant
	target *target
	shows  int // number of affected tests so far
	seen   bool
}

// round is one run over all chosen changes.
type round struct {
	bench   *bench
	begin   time.Time
	reasons map[string]string
	done    map[string]string // outcomes of an earlier run

	mu     sync.Mutex
	left   []*mutant
	counts map[*target]*count
	failed error
}

// try tries the remaining changes with one test program after the other, the nearest first,
// so that slow programs are built and run only for changes that no fast program notices.
func (r *round) try(chosen []*target) error {
	r.each(r.left, r.first)
	var names []string
	for i := range 20 {
		for _, t := range chosen {
			if i < len(t.programs) && !slices.Contains(names, t.programs[i]) {
				names = append(names, t.programs[i])
			}
		}
	}
	for _, name := range names {
		some := slices.DeleteFunc(slices.Clone(r.left), func(m *mutant) bool {
			_, known := r.reasons[m.Key()] // the nearest tests are enough to confirm the reason
			return r.bench.numbers[m.String()] == 0 || !slices.Contains(m.target.programs, name) || known && name != m.target.programs[0]
		})
		if len(some) == 0 || r.failed != nil || r.late() {
			continue
		}
		p, err := r.bench.open(name)
		if err != nil {
			return err
		}
		r.each(some, func(m *mutant) (string, error) {
			outcome, shows := r.bench.judge(p, r.bench.numbers[m.String()])
			m.shows += shows
			if outcome == "" {
				fmt.Fprintf(out, "not caught by %d tests of %s\t%s\n", shows, name, m)
			}
			return outcome, nil
		})
	}
	r.each(r.left, func(m *mutant) (string, error) {
		if r.bench.numbers[m.String()] != 0 {
			return "", nil
		}
		return m.target.alone(m.Mutant)
	})
	for _, m := range slices.Clone(r.left) {
		if !r.late() {
			r.settle(m, fmt.Sprintf("%s %d tests in which it would show", survived, m.shows), nil, 0)
		}
	}
	for _, t := range chosen {
		fmt.Fprintln(out, t.name+":", r.counts[t])
	}
	if len(r.left) > 0 {
		fmt.Fprintf(out, "%d changes are not tried to the end\n", len(r.left))
	}
	for _, c := range r.counts {
		if c.survived > 0 {
			r.failed = errors.Join(r.failed, fmt.Errorf("%d changes survived", c.survived))
		}
	}
	return r.failed
}

func (r *round) late() bool { return *until > 0 && time.Since(r.begin) > *until }

// first settles changes that were tried before or that do not compile.
func (r *round) first(m *mutant) (string, error) {
	switch known, ok := r.done[m.String()]; {
	case ok:
		m.seen = true
		return known, nil
	case r.bench.unbuilt[m.String()]:
		return unbuilt, nil
	}
	return "", nil
}

// each runs try on mutants, a few in parallel, and settles each mutant with an outcome.
func (r *round) each(mutants []*mutant, try func(*mutant) (string, error)) {
	var wg sync.WaitGroup
	next := make(chan *mutant)
	for range *workers {
		wg.Go(func() {
			for m := range next {
				start := time.Now()
				outcome, err := try(m)
				if outcome != "" || err != nil {
					r.settle(m, outcome, err, time.Since(start))
				}
			}
		})
	}
	for _, m := range slices.Clone(mutants) {
		if !r.late() {
			next <- m
		}
	}
	close(next)
	wg.Wait()
}

func (r *round) settle(m *mutant, outcome string, err error, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed = errors.Join(r.failed, err); err != nil {
		return
	}
	r.left = slices.DeleteFunc(r.left, func(o *mutant) bool { return o == m })
	if !m.seen {
		r.failed = errors.Join(r.failed, note(fmt.Sprintf("%s\t%s\t%v", outcome, m, took.Round(time.Millisecond))))
	}
	r.counts[m.target].add(m.Mutant, outcome, r.reasons)
}

func (c *count) add(m source.Mutant, outcome string, reasons map[string]string) {
	if outcome == unbuilt {
		c.unbuilt++
		return
	}
	c.tried++
	reason, known := reasons[m.Key()]
	switch {
	case !strings.HasPrefix(outcome, survived):
		c.killed++
		if known {
			fmt.Fprintf(out, "caught, although survivors.txt has a reason why it cannot be: %s\n", m)
		}
	case known:
		c.equivalent++
		fmt.Fprintf(out, "changes nothing\t%s\t%s\n", m, reason)
	default:
		c.survived++
	}
}

// note prints a line, and appends it to the report.
func note(line string) error {
	fmt.Fprintln(out, line)
	if *report == "" {
		return nil
	}
	f, err := os.OpenFile(*report, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, line)
	return err
}

// readReport returns the outcomes of the changes in an earlier report.
func readReport() (map[string]string, error) {
	done := make(map[string]string)
	text, err := os.ReadFile(*report)
	if err != nil && *report != "" && !os.IsNotExist(err) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) == 3 {
			done[f[1]] = f[0]
		}
	}
	return done, nil
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
