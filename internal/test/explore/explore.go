// Package explore tries everything that a few parties can do with one lock, up to a
// number of steps: every order of what they ask, of answers that are lost and requests
// that are late or doubled, and of the ends of leases, places and windows, a
// microsecond before each of them and exactly at it.
//
// The store is the rule of package internal/room. Parties believe what they were told by
// the arithmetic of package internal/timing. In each state it is judged whether what
// somebody was told is true, and whether what is promised holds. A state counts once,
// whatever way leads to it. What is found is the shortest way to it.
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

// Trace is a way to a state: which of the steps that were possible was taken each time.
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

// ParseTrace reads what String has written.
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

// Result is what an exploration comes to.
type Result struct {
	States int // that differ
	Steps  int // that were tried
	Depth  int // that all of them have at most
	Wrong  string
	Trace  Trace // the shortest that is wrong
}

// Explore tries everything up to depth. visit, if it is not nil, is called with the
// way by which each step of each state was tried, one call at a time.
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

// expand tries all that can come after each of the ways.
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

// after tries all that can come after a way.
func (e *explorer) after(way Trace) {
	w, _ := e.Follow(way)
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

// note takes note of a step. The caller holds mu.
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

// Follow takes the steps of a trace.
func (s *Scenario) Follow(t Trace) (*world, error) {
	w := newWorld(s)
	for n, step := range t {
		actions := w.actions()
		if int(step) >= len(actions) {
			return w, fmt.Errorf("step %d: there are %d ways to go on, not %d", n+1, len(actions), step+1)
		}
		w.do(actions[step])
	}
	return w, nil
}

// Tell takes the steps of a trace, and returns what happens in them and the calls of
// the store.
func (s *Scenario) Tell(t Trace) (text []string, calls []Call, wrong string) {
	w := newWorld(s)
	w.noting = true
	for _, step := range t {
		actions := w.actions()
		if int(step) >= len(actions) {
			return append(w.text, "there is no such step"), w.calls, w.wrong
		}
		w.do(actions[step])
	}
	w.settles()
	return w.text, w.calls, w.wrong
}

func sameRequest(a, b driver.Request) bool { return reflect.DeepEqual(a, b) }
