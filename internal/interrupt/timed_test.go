package interrupt

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var background = context.Background()

func TestBeginTimed_CallEndsAtItsTimeOrALittleLater(t *testing.T) {
	for _, cancellable := range []bool{false, true} {
		for _, timeout := range []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second, time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := background, func() {}
				if cancellable {
					ctx, cancel = context.WithCancel(ctx)
				}
				defer cancel()
				cs := new(Conns)
				start := time.Now()
				c := cs.BeginTimed(ctx, timeout)
				defer c.End()
				if d, ok := c.Deadline(); !ok || d.After(start.Add(timeout)) || d.Before(start.Add(timeout-time.Millisecond)) {
					t.Errorf("deadline %v after the start, want %v", d.Sub(start), timeout)
				}
				if c.Err() != nil {
					t.Error(c.Err())
				}
				<-c.Done()
				if took := time.Since(start); took < timeout-time.Millisecond || took > timeout+timeout/8 {
					t.Errorf("ended after %v, want %v", took, timeout)
				}
				if !errors.Is(c.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(c), context.DeadlineExceeded) {
					t.Error(c.Err(), context.Cause(c))
				}
			})
		}
	}
}

// TestBeginTimed_CallEndsWithItsContext: a library may ask for the channel only after it has written, for a
// call that has ended since.
func TestBeginTimed_CallEndsWithItsContext(t *testing.T) {
	for _, asksLate := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			reason := errors.New("no more")
			ctx, cancel := context.WithCancelCause(background)
			cs := new(Conns)
			c, other := cs.BeginTimed(ctx, time.Second), cs.BeginTimed(background, time.Second)
			if !asksLate {
				c.Done()
			}
			cancel(reason)
			synctest.Wait() // until the call has noticed the end
			isDone(t, c)
			if !errors.Is(c.Err(), context.Canceled) || !errors.Is(context.Cause(c), reason) {
				t.Error(c.Err(), context.Cause(c))
			}
			if other.Err() != nil {
				t.Error(other.Err())
			}
			time.Sleep(2 * time.Second)
			isDone(t, other)
			c.End()
			other.End()
			time.Sleep(2 * grace)
		})
	}
}

// isDone checks that the channel of a call is closed.
func isDone(t *testing.T, c *Call) {
	t.Helper()
	select {
	case <-c.Done():
	default:
		t.Error("its channel is open")
	}
}

func TestBeginTimed_CallsShareMomentsAndLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		cs := new(Conns)
		var calls []*Call
		for range 1000 {
			calls = append(calls, cs.BeginTimed(ctx, 2*time.Second))
		}
		for _, c := range calls[:500] {
			if first, second := c.Done(), c.Done(); first != second {
				t.Fatal("a call has two channels")
			}
		}
		left := func() (moments, calls int) {
			cs.timing.Lock()
			defer cs.timing.Unlock()
			for _, m := range cs.moments {
				calls += len(m.calls)
			}
			return len(cs.moments), calls
		}
		if moments, calls := left(); moments > 2 || calls != 500 {
			t.Errorf("%d timers for 1000 calls, %d channels where 500 were asked for, want at most 2 and 500", moments, calls)
		}
		for i := range calls { // not in their order
			calls[(i*7)%1000].End()
		}
		if _, calls := left(); calls != 0 {
			t.Errorf("%d calls are left", calls)
		}
		time.Sleep(3 * time.Second)
		if moments, _ := left(); moments > 0 {
			t.Errorf("%d moments are left", moments)
		}
	})
}

// followed is a context that could end, and knows how many follow it.
type followed struct {
	context.Context
	done chan struct{}
	n    atomic.Int64
}

func follow() *followed { return &followed{Context: background, done: make(chan struct{})} }

func (f *followed) Done() <-chan struct{} { return f.done }

func (f *followed) AfterFunc(func()) func() bool {
	f.n.Add(1)
	return func() bool { f.n.Add(-1); return true }
}

func TestBegin_OnlyACallThatTakesLongFollowsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, cs := follow(), new(Conns)
		soon := []*Call{cs.Begin(f, time.Second), cs.BeginTimed(f, time.Second), cs.Begin(f, time.Second)}
		late := []*Call{cs.BeginTimed(f, time.Second), cs.Begin(f, time.Second)}
		for _, c := range soon {
			c.End()
		}
		time.Sleep(grace + 1)
		synctest.Wait()
		if n := f.n.Load(); n != 2 {
			t.Errorf("%d follow their context after %v, want those that have not returned", n, grace)
		}
		later := cs.Begin(f, time.Second)
		time.Sleep(grace + 1)
		synctest.Wait()
		if n := f.n.Load(); n != 3 {
			t.Errorf("%d follow their context, want one that came later too", n)
		}
		for _, c := range append(late, later) {
			c.End()
		}
		if n := f.n.Load(); n != 0 {
			t.Errorf("%d follow their context still", n)
		}
		time.Sleep(2 * grace)
		cs.watching.Lock()
		defer cs.watching.Unlock()
		if cs.ticking || len(cs.young) > 0 {
			t.Errorf("it goes on, with %d calls", len(cs.young))
		}
	})
}

// A call that returns while it is being made to follow its context is forgotten all the same.
func TestBegin_ACallThatReturnsAtATickFollowsNothing(t *testing.T) {
	f, cs := follow(), new(Conns)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 2000 {
				c := cs.Begin(f, time.Second)
				cs.tick()
				c.End()
			}
		})
	}
	all.Wait()
	for end := time.Now().Add(10 * time.Second); f.n.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d are left", f.n.Load())
		}
	}
}
