package locktest_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// The cases hold the library to bounds in real time: a window, a heartbeat, a
// lease's end. Their premise is that the machine lets store and clients run
// within a fraction of these. A case that fails while it did not is played
// again, and in the end is not judged.

const (
	// busy is an answer of the store that takes so long that a bound may be
	// missed for want of a processor.
	busy = window / 10
	// attempts is how often a case is played that a busy machine spoils.
	attempts = 3
)

// pulse takes a lock that nobody else wants and gives it back, again and again,
// and remembers how long that took.
type pulse struct {
	stop chan struct{}
	done sync.WaitGroup

	mu    sync.Mutex
	asked time.Time // when the beat that is under way began
	slow  []answer
}

// answer is a beat that took long.
type answer struct {
	at   time.Time
	took time.Duration
}

func startPulse(t *testing.T, c Config) *pulse {
	p := &pulse{stop: make(chan struct{})}
	d := c.Open(t)
	p.done.Go(func() {
		defer d.Close()
		for due := time.Now(); ; {
			p.beat(d, due)
			// A beat that begins late is slow as well: nobody let this process run.
			due = time.Now().Add(50 * time.Millisecond)
			select {
			case <-p.stop:
				return
			case <-time.After(time.Until(due)):
			}
		}
	})
	return p
}

// beat asks for what should have been asked for at start.
func (p *pulse) beat(d driver.Driver, start time.Time) {
	p.mu.Lock()
	p.asked = start
	p.mu.Unlock()
	// That they come back is all.
	req := driver.Request{Key: "pulse", ID: rand.Text(), TTL: life}
	_, _ = d.Acquire(context.Background(), req)
	_, _ = d.Release(context.Background(), driver.Ref{Key: req.Key, ID: req.ID})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = time.Time{}
	if took := time.Since(start); took > busy {
		p.slow = append(p.slow, answer{time.Now(), took})
	}
}

// slowest is the longest time that a beat took since then.
func (p *pulse) slowest(since time.Time) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked.IsZero() {
		longest = time.Since(p.asked)
	}
	for _, a := range p.slow {
		if a.at.After(since) {
			longest = max(longest, a.took)
		}
	}
	return longest
}

func (p *pulse) end() {
	close(p.stop)
	p.done.Wait()
}

// play plays a case, and judges it if the machine let it be played.
func play(t *testing.T, c Config, r row, p *pulse) {
	for n := 1; ; n++ {
		start := time.Now()
		a := &attempt{TB: t}
		a.run(func() { r.run(&lab{TB: a, config: c, key: fmt.Sprintf("%s#%d", r.name, n)}) })
		slowest := p.slowest(start)
		if !a.Failed() || slowest <= busy {
			a.report()
			return
		}
		t.Logf("played while the store took %v to answer: %q", slowest, a.said)
		if n == attempts {
			t.Skip("not judged: the machine is too busy")
		}
	}
}

// attempt is a case being played once.
type attempt struct {
	testing.TB

	mu       sync.Mutex
	failed   bool
	said     []string
	cleanups []func()
}

// run plays f and what it asked to have done after it. Like a test's, f's
// goroutine ends with the first Fatal.
func (a *attempt) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer a.cleanUp()
		f()
	}()
	<-done
}

func (a *attempt) cleanUp() {
	a.mu.Lock()
	last := a.cleanups
	a.cleanups = nil
	a.mu.Unlock()
	for _, f := range slices.Backward(last) {
		f()
	}
}

// report has the test say and be what the attempt said and was.
func (a *attempt) report() {
	a.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, text := range a.said {
		a.TB.Log(text)
	}
	if a.failed {
		a.TB.Fail()
	}
}

// say notes what was said, and where in the case: the callers' lines, innermost
// first.
func (a *attempt) say(text string) {
	pc := make([]uintptr, 8)
	frames := runtime.CallersFrames(pc[:runtime.Callers(3, pc)]) // not of this method and its caller
	for {
		f, more := frames.Next()
		if !more || strings.Contains(f.Function, "attempt") || strings.Contains(f.Function, ".play") {
			break
		}
		text += fmt.Sprintf(" [%s:%d]", filepath.Base(f.File), f.Line)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said = append(a.said, text)
}

func (a *attempt) Log(args ...any)                 { a.say(fmt.Sprint(args...)) }
func (a *attempt) Logf(format string, args ...any) { a.say(fmt.Sprintf(format, args...)) }

func (a *attempt) Error(args ...any) {
	a.say(fmt.Sprint(args...))
	a.Fail()
}

func (a *attempt) Errorf(format string, args ...any) {
	a.say(fmt.Sprintf(format, args...))
	a.Fail()
}

func (a *attempt) Fatal(args ...any) {
	a.say(fmt.Sprint(args...))
	a.FailNow()
}

func (a *attempt) Fatalf(format string, args ...any) {
	a.say(fmt.Sprintf(format, args...))
	a.FailNow()
}

func (a *attempt) Fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = true
}

// FailNow ends the goroutine of the case, which is the one that calls it.
func (a *attempt) FailNow() {
	a.Fail()
	runtime.Goexit()
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

func (a *attempt) Cleanup(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cleanups = append(a.cleanups, f)
}
