package redisroom

import (
	"flag"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/microscope"
	"github.com/leasehold-go/leasehold/internal/test/mutate/source"
)

var (
	mutantPart    = flag.Float64("microscope.mutants", 0, "the part of the changes of the scripts to try through the microscope")
	mutantFor     = flag.Duration("microscope.mutants.for", 0, "begin no other change after so long")
	mutantWorkers = flag.Int("microscope.mutants.p", 2, "how many changes are tried at a time")
	mutantOnly    = flag.String("microscope.mutants.only", "", "try those only whose names contain this")
)

// TestMicroscope_Mutants tries changes of conditions and constants of the scripts, as `make
// mutants` does, and reports the changes with which every world is explored without an error and
// with as many commands as before.
func TestMicroscope_Mutants(t *testing.T) {
	if *mutantPart == 0 {
		return // by its flag
	}
	all := scriptMutants(t)
	reasons, err := source.Reasons()
	if err != nil {
		t.Fatal(err)
	}
	explorations := unchanged(t)
	order := rand.New(rand.NewPCG(1, 0)).Perm(len(all))
	todo := make(chan source.Mutant, len(all))
	for _, n := range order[:int(float64(len(all))**mutantPart)] {
		if strings.Contains(all[n].String(), *mutantOnly) {
			todo <- all[n]
		}
	}
	close(todo)

	start := time.Now()
	var mu sync.Mutex
	caught, equal, survived := 0, 0, 0
	one := func(m source.Mutant) {
		outcome := judge(m, explorations)
		mu.Lock()
		defer mu.Unlock()
		_, explained := reasons[m.Key()]
		switch {
		case explained && strings.HasPrefix(outcome, "wrong"):
			t.Errorf("%s, though survivors.txt lists it as undetectable: %s", outcome, m)
		case explained:
			equal++
		case strings.HasPrefix(outcome, "wrong"), strings.HasPrefix(outcome, "costly"):
			caught++
		default:
			survived++
			t.Logf("%s %s", outcome, m)
		}
	}
	var wg sync.WaitGroup
	for range *mutantWorkers {
		wg.Go(func() {
			for m := range todo {
				if *mutantFor == 0 || time.Since(start) < *mutantFor {
					one(m)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d of %d changes tried, %d caught of %d that can be (%.1f %%), %d survived, %d change nothing; %v", caught+equal+survived, len(all), caught, caught+survived,
		100*float64(caught)/float64(max(caught+survived, 1)), survived, equal, time.Since(start).Round(time.Second))
}

// scriptMutants are the changes of the scripts.
func scriptMutants(t *testing.T) (all []source.Mutant) {
	t.Helper()
	err := fs.WalkDir(luaFiles, "lua", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "replicas.lua" || d.Name() == "lasting.lua" {
			return err
		}
		text, err := luaFiles.ReadFile(file)
		all = append(all, source.Lua("internal/redisroom/"+file, string(text))...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// exploration is the exploration of a world, and how many commands its steps take without a change.
type exploration struct {
	world    world
	bounds   bounds
	commands int
}

// unchanged explores all worlds without a change: first within narrow bounds, which show most
// changes, and then within the bounds of the test without changes.
func unchanged(t *testing.T) (all []exploration) {
	t.Helper()
	for _, b := range []bounds{{states: 8, failed: 1, damaged: 1}, normal()} {
		for _, w := range slices.Backward(worlds) { // plays are short
			l := newLens(lensStart)
			seen, err := l.explore(w, b)
			if err != nil {
				t.Fatal(err)
			}
			l.server.Close()
			all = append(all, exploration{w, b, seen.commands})
		}
	}
	return all
}

// judge explores the worlds with a change, until one shows it, and returns the outcome.
func judge(m source.Mutant, explorations []exploration) string {
	scripts := new(microscope.Scripts)
	for _, e := range explorations {
		if outcome := e.judgeInTime(m, scripts); outcome != "" {
			return outcome
		}
	}
	return "SURVIVED"
}

// judgeInTime is judge with a time limit. A pattern can keep the interpreter busy for ever, and
// cannot be interrupted: its goroutine is left alone.
func (e exploration) judgeInTime(m source.Mutant, scripts *microscope.Scripts) string {
	const limit = 2 * time.Minute
	done := make(chan string, 1)
	go func() { done <- e.judge(m, scripts) }()
	select {
	case outcome := <-done:
		return outcome
	case <-time.After(limit):
		return "UNDECIDED after " + limit.String()
	}
}

// judge returns an empty outcome if the exploration is as without the change. A change is wrong if
// it leads to an error, and costly if the steps take another number of commands.
func (e exploration) judge(m source.Mutant, scripts *microscope.Scripts) string {
	l := newLensOn(microscope.NewWith(lensStart, scripts))
	defer l.server.Close()
	l.server.Limit = 2 * time.Second
	for sha, whole := range l.texts {
		l.texts[sha] = strings.ReplaceAll(whole, include(m.Text()), include(m.Changed()))
	}
	seen, err := l.explore(e.world, e.bounds)
	switch {
	case err != nil:
		return "wrong in " + e.world.name
	case seen.commands != e.commands:
		return "costly in " + e.world.name
	}
	return ""
}
