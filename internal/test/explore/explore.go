// Package explore tries all actions of a few parties with one lock, up to a
// number of steps: every order of requests, of lost answers, of late and repeated
// requests, and of the ends of leases, places and windows, a
// microsecond before each of them and exactly at it.
//
// The store is the rule of package internal/room. Parties interpret answers with
// the arithmetic of package internal/timing. In each state it is checked that all answers
// are true, and that the promises hold. A state counts once,
// however it is reached. The result is the shortest trace to a violation.
package explore

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/leasehold-go/leasehold/driver"
)

// Trace is a path to a state: for each step the index of the action that was taken.
type Trace []uint8

func (t Trace) String() string {
	var b strings.Builder
	for i, step := range t {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(strconv.Itoa(int(step)))
	}
	return b.String()
}

// ParseTrace parses the text of [Trace.String].
func ParseTrace(text string) (t Trace, err error) {
	if text == "" {
		return nil, nil
	}
	for step := range strings.SplitSeq(text, ".") {
		n, err := strconv.ParseUint(step, 10, 8)
		if err != nil {
			return nil, fmt.Errorf("%q is not a trace: %w", text, err)
		}
		t = append(t, uint8(n))
	}
	return t, nil
}

// Result is the result of an exploration.
type Result struct {
	States int // distinct
	Steps  int // tried
	Depth  int // the greatest number of steps to a state
	Wrong  string
	Trace  Trace // the shortest to a violation
}

// Explore tries all actions up to depth. If visit is not nil, it is called with the
// trace of each step of each state, one call at a time.
func (s *Scenario) Explore(depth int, visit func(Trace)) Result {
	e := explorer{Scenario: s, orders: s.orders(), seen: make(map[uint64]struct{}), visit: visit}
	e.seen[newWorld(s).hash(e.orders)] = struct{}{}
	level := []Trace{{}}
	for d := range depth {
		e.Result.Depth = d + 1
		if level = e.expand(level); e.Wrong != "" {
			break
		}
	}
	e.States = len(e.seen)
	return e.Result
}

type explorer struct {
	*Scenario
	Result
	orders [][]uint8
	visit  func(Trace)

	mu   sync.Mutex
	seen map[uint64]struct{}
	next []Trace
}

// expand tries all actions after each of the traces.
func (e *explorer) expand(level []Trace) []Trace {
	e.next = nil
	var wg sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for i := range n {
		wg.Go(func() {
			for at := i; at < len(level); at += n {
				e.after(level[at])
			}
		})
	}
	wg.Wait()
	return e.next
}

// after tries all actions after a trace.
func (e *explorer) after(way Trace) {
	w := e.follow(way, false)
	actions := w.actions()
	for i, a := range actions {
		c := w.clone()
		c.do(a)
		c.settles()
		hash := c.hash(e.orders)
		e.mu.Lock()
		e.note(append(slices.Clip(way), uint8(i)), c.wrong, hash) //nolint:gosec // few
		e.mu.Unlock()
	}
}

// note records a step. The caller holds mu.
func (e *explorer) note(way Trace, wrong string, hash uint64) {
	e.Steps++
	if wrong != "" && e.Wrong == "" {
		e.Wrong, e.Trace = wrong, way
	}
	if e.visit != nil {
		e.visit(way)
	}
	if _, ok := e.seen[hash]; !ok {
		e.seen[hash] = struct{}{}
		e.next = append(e.next, way)
	}
}

// follow takes the steps of a trace. If noting is set, the world keeps the text of the steps, and
// the calls of the store.
func (s *Scenario) follow(t Trace, noting bool) *world {
	w := newWorld(s)
	w.noting = noting
	for n, step := range t {
		actions := w.actions()
		if int(step) >= len(actions) {
			w.text = append(w.text, fmt.Sprintf("step %d: there are %d ways to go on, not %d", n+1, len(actions), step+1))
			break
		}
		w.do(actions[step])
	}
	return w
}

// Describe takes the steps of a trace, and returns a description of them and the calls of the
// store.
func (s *Scenario) Describe(t Trace) (text []string, calls []Call, wrong string) {
	w := s.follow(t, true)
	w.settles()
	return w.text, w.calls, w.wrong
}

func sameRequest(a, b driver.Request) bool { return reflect.DeepEqual(a, b) }
