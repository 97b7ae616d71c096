package interrupt

import (
	"context"
	"errors"
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

func TestBeginTimed_CallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reason := errors.New("no more")
		ctx, cancel := context.WithCancelCause(background)
		cs := new(Conns)
		c, other := cs.BeginTimed(ctx, time.Second), cs.BeginTimed(background, time.Second)
		cancel(reason)
		<-c.Done()
		if !errors.Is(c.Err(), context.Canceled) || !errors.Is(context.Cause(c), reason) {
			t.Error(c.Err(), context.Cause(c))
		}
		if other.Err() != nil {
			t.Error(other.Err())
		}
		c.End()
		other.End()
		time.Sleep(2 * grace)
	})
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
		left := func() (moments, calls int) {
			cs.timing.Lock()
			defer cs.timing.Unlock()
			for _, m := range cs.moments {
				calls += len(m.calls)
			}
			return len(cs.moments), calls
		}
		if moments, calls := left(); moments > 2 || calls != 1000 {
			t.Errorf("%d timers for %d calls, want at most 2 for 1000", moments, calls)
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
