// Command mutate changes conditions and constants of the sources on which the promises
// rest, one at a time, and runs the tests that should notice.
//
//	go run ./internal/mutate [flags] [target ...]
//
// A change that no test notices is printed as SURVIVED, unless survivors.txt says why
// nothing can notice it. The sources themselves are left alone: the changed file takes
// its original's place by an overlay of the go command.
package main

import (
	"bufio"
	_ "embed"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/mutate/source"
)

// target is what is changed, and the tests that should notice.
type target struct {
	name  string
	files []string // patterns, from the top of the repository
	// tests are the arguments of go test, one run after the other until one fails.
	tests [][]string
}

var targets = []target{
	{
		name:  "room",
		files: []string{"internal/room/*.go"},
		tests: [][]string{
			{"./internal/room"},
			{"-run=Microscope", "./internal/redisroom"},
			{"./memdriver", "./driver/roomdriver"},
			{"-run=Histories", "./internal/redisroom"},
			{"./filedriver"},
			{"."},
		},
	},
	{
		name:  "timing",
		files: []string{"internal/timing/*.go"},
		tests: [][]string{{"./internal/timing", "./internal/session"}, {"."}, {"./quorumdriver"}, {"./httpdriver", "./server"}},
	},
	{
		name:  "session",
		files: []string{"internal/session/*.go"},
		tests: [][]string{{"./internal/session"}, {"."}, {"./httpdriver", "./server"}},
	},
	{
		name: "scripts",
		files: []string{
			"internal/redisroom/lua/*.lua", "internal/redisroom/lua/acquire/*.lua", "internal/redisroom/lua/release/*.lua",
			"internal/redisroom/lua/renew/*.lua", "internal/redisroom/lua/room/*.lua",
		},
		tests: [][]string{{"-run=Microscope", "./internal/redisroom"}, {"-run=Histories|Stages", "./internal/redisroom"}, {"./internal/redisroom"}},
	},
}

var (
	list   = flag.Bool("list", false, "only print the changes")
	part   = flag.Float64("part", 1, "the part of the changes to try, drawn by lot")
	seed   = flag.Uint64("seed", 1, "of the lot")
	only   = flag.String("only", "", "a regular expression of the changes to try")
	report = flag.String("report", "", "a file to which results are appended, and whose changes are not tried again")
	until  = flag.Duration("for", 0, "begin no other change after so long")
)

func main() {
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1) //nolint:forbidigo // this is a program
	}
}

// out is where the results go.
var out = os.Stdout

func run(names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(targets, func(t target) bool { return t.name == name }) {
			return fmt.Errorf("no target %q", name)
		}
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	reasons, err := readReasons()
	if err != nil {
		return err
	}
	begin, all := time.Now(), make(map[string]*count)
	for _, t := range targets {
		if len(names) > 0 && !slices.Contains(names, t.name) {
			continue
		}
		mutants, err := t.mutants()
		if err != nil {
			return err
		}
		mutants = slices.DeleteFunc(mutants, func(m source.Mutant) bool { return !pattern.MatchString(m.String()) })
		mutants = draw(mutants, *part, *seed)
		if *list {
			for _, m := range mutants {
				fmt.Fprintln(out, m)
			}
			fmt.Fprintf(out, "%s: %d changes\n", t.name, len(mutants))
			continue
		}
		if all[t.name], err = t.try(mutants, reasons, begin); err != nil {
			return err
		}
	}
	survived := 0
	for _, t := range targets {
		if c := all[t.name]; c != nil {
			fmt.Fprintln(out, t.name+":", c)
			survived += c.survived
		}
	}
	if survived > 0 {
		return fmt.Errorf("%d changes survived", survived)
	}
	return nil
}

// draw returns the given part of the mutants, in their order.
func draw(mutants []source.Mutant, part float64, seed uint64) []source.Mutant {
	rnd := rand.New(rand.NewPCG(seed, 0))
	return slices.DeleteFunc(mutants, func(source.Mutant) bool { return rnd.Float64() >= part })
}

// count is what became of the changes of a target.
type count struct{ tried, killed, equivalent, survived int }

func (c *count) String() string {
	able := c.killed + c.survived
	return fmt.Sprintf("%d tried, %d caught of %d that can be (%.1f %%), %d survived, %d equivalent",
		c.tried, c.killed, able, 100*float64(c.killed)/float64(max(able, 1)), c.survived, c.equivalent)
}

// try tries the mutants, one at a time.
func (t *target) try(mutants []source.Mutant, reasons map[string]string, begin time.Time) (*count, error) {
	done, err := readReport()
	if err != nil {
		return nil, err
	}
	bounds, err := t.baseline()
	if err != nil {
		return nil, err
	}
	c := new(count)
	for _, m := range mutants {
		if *until > 0 && time.Since(begin) > *until {
			break
		}
		outcome, ok := done[m.String()]
		if !ok {
			start := time.Now()
			if outcome, err = t.judge(m, bounds); err != nil {
				return nil, err
			}
			took := time.Since(start).Round(time.Second)
			if err := note(fmt.Sprintf("%s\t%s\t%v", outcome, m, took)); err != nil {
				return nil, err
			}
		}
		reason, known := reasons[m.Key()]
		switch {
		case outcome == unbuilt:
			continue
		case outcome != survived:
			c.killed++
		case known:
			c.equivalent++
			fmt.Fprintf(out, "equivalent\t%s\t%s\n", m, reason)
		default:
			c.survived++
		}
		c.tried++
	}
	return c, nil
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

// readReport returns the outcomes of the changes that have been tried before.
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

//go:embed survivors.txt
var survivors string

// readReasons reads why nothing can notice a change: a line that begins with "#" is
// a comment, one without a tab at its beginning is a change without its line's
// number, and an indented one the reason.
func readReasons() (map[string]string, error) {
	reasons := make(map[string]string)
	var keys []string
	fresh := true
	for scan := bufio.NewScanner(strings.NewReader(survivors)); scan.Scan(); {
		line := scan.Text()
		switch {
		case strings.TrimSpace(line) == "" || line[0] == '#':
		case line[0] != '\t':
			if fresh {
				keys, fresh = nil, false
			}
			keys = append(keys, line)
		case len(keys) == 0:
			return nil, fmt.Errorf("survivors.txt: a reason without a change: %s", line)
		default:
			fresh = true
			for _, key := range keys {
				reasons[key] = strings.TrimSpace(reasons[key] + " " + strings.TrimSpace(line))
			}
		}
	}
	return reasons, nil
}

// mutants returns the changes of a target, in the order of their places.
func (t *target) mutants() (all []source.Mutant, err error) {
	for _, pattern := range t.files {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			mutate := source.Go
			if strings.HasSuffix(file, ".lua") {
				mutate = source.Lua
			}
			some, err := mutate(file, string(text))
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: nothing to change: run this from the top of the repository", t.name)
	}
	return all, nil
}
