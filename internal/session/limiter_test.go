package session

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// crowd is a limiter with queued requests, in virtual time.
type crowd struct {
	limiter
	start time.Time
	told  sync.Mutex
	left  []time.Duration // when they left, in the order of the queue; negative if they gave up
}

// stand queues n more requests, which give up after the given time.
func (c *crowd) stand(ctx context.Context, n int, patience time.Duration) {
	end := time.Now().Add(patience)
	for range n {
		i := len(c.stood())
		c.told.Lock()
		c.left = append(c.left, 0)
		c.told.Unlock()
		go func() {
			_, ok := c.wait(ctx, nil, func() time.Duration { return time.Until(end) })
			c.told.Lock()
			defer c.told.Unlock()
			if c.left[i] = time.Since(c.start); !ok {
				c.left[i] *= -1
			}
		}()
		synctest.Wait()
	}
}

// stood returns when the requests left.
func (c *crowd) stood() []time.Duration {
	return locked(&c.told, func() []time.Duration { return slices.Clone(c.left) })
}

// counts returns the counters of the limiter.
func (c *crowd) counts() (busy, spans, probes, line int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy, len(c.spans), c.probes, c.line.Len()
}

// gone returns how many requests have left, which must be the first of the queue.
func (c *crowd) gone(t *testing.T) int {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	sum := 0
	for _, n := range c.spans {
		sum += n
	}
	if sum != c.busy || len(c.spans) > 0 && slices.Min(c.spans) < 0 {
		t.Errorf("%d are under way, by spans %v", c.busy, c.spans)
	}
	c.mu.Unlock()
	n := 0
	for i, at := range c.stood() {
		if at <= 0 {
			continue
		}
		if n++; n != i+1 {
			t.Fatalf("request %d left before an earlier one", i)
		}
	}
	return n
}

func inCrowd(t *testing.T, f func(t *testing.T, c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, &crowd{limiter: limiter{most: inFlight}, start: time.Now()}) })
}

// passes lets n requests start at once.
func (c *crowd) passes(t *testing.T, n int) (all []spanNumber) {
	t.Helper()
	for i := range n {
		p, ok := c.tryStart()
		if !ok {
			t.Fatalf("only %d start", i)
		}
		all = append(all, p)
	}
	return all
}

// TestGate_ProbesAStoreThatAnswersNobody: 16 after the first span of 250 ms, 16 after the next,
// then twice as many, up to 256 after each, until a request is answered. Spans count from the first
// in the queue, however many arrive later.
func TestGate_ProbesAStoreThatAnswersNobody(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		under := c.passes(t, 256)
		c.stand(t.Context(), 17, time.Hour)
		time.Sleep(125 * ms)
		c.stand(t.Context(), 983, time.Hour)
		time.Sleep(124 * ms)
		if n := c.gone(t); n != 0 {
			t.Errorf("%d left before the first span ended", n)
		}
		time.Sleep(2 * ms)
		sum := 0
		for span, more := range []int{16, 16, 32, 64, 128, 256, 256} {
			if sum += more; c.gone(t) != sum {
				t.Errorf("%d left after %d spans, want %d", c.gone(t), span+1, sum)
			}
			time.Sleep(250 * ms)
		}
		if n := c.gone(t); n != 1000 {
			t.Fatalf("%d left in the end", n)
		}
		// Without queued requests, old probes no longer count, and no spans are counted.
		_, before, _, _ := c.counts()
		time.Sleep(time.Hour)
		if _, spans, probes, _ := c.counts(); probes != 0 || spans != before {
			t.Errorf("%d probes, %d more spans", probes, spans-before)
		}
		for _, p := range under {
			c.end(p, false)
		}
		_, ok := c.tryStart()
		if busy, _, _, _ := c.counts(); ok || busy != 1000 {
			t.Errorf("one left: %v, %d are under way", ok, busy)
		}
	})
}

// TestGate_CountsNoMoreWhatHangs: once a request is answered that left in a later span, requests
// that left more than one span before it no longer delay the queue.
func TestGate_CountsNoMoreWhatHangs(t *testing.T) {
	for _, answered := range []bool{true, false} {
		inCrowd(t, func(t *testing.T, c *crowd) {
			hung := c.passes(t, 256)
			c.stand(t.Context(), 600, time.Hour)
			time.Sleep(251 * ms) // 16 have left in the second span
			if n := c.gone(t); n != 16 {
				t.Fatalf("%d left", n)
			}
			time.Sleep(250 * ms) // and 16 in the third
			if n := c.gone(t); n != 32 {
				t.Fatalf("%d left", n)
			}
			c.end(2, answered) // of the third span: the requests of the first no longer count
			if n, want := c.gone(t), map[bool]int{true: 256 + 1, false: 33}[answered]; n != want {
				t.Errorf("%d left after an answer (%v), want %d", n, answered, want)
			}
			c.end(hung[0], false)
			if n, want := c.gone(t), map[bool]int{true: 256 + 1, false: 34}[answered]; n != want {
				t.Errorf("%d left after one that hung (%v), want %d", n, answered, want)
			}
			for range 2 { // more of the third span, which may have left since
				c.end(2, true)
				c.gone(t)
			}
			if p, ok := c.tryStart(); ok {
				c.end(p, false)
				c.gone(t)
			}
		})
	}
}

// TestGate_WhoeverGivesUpLeavesTheLine at its time.
func TestGate_WhoeverGivesUpLeavesTheLine(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		under := c.passes(t, 256)
		ctx, cancel := context.WithCancel(t.Context())
		c.stand(ctx, 1, time.Hour)
		c.stand(t.Context(), 1, 100*ms)
		time.Sleep(50 * ms)
		cancel()
		synctest.Wait()
		time.Sleep(50 * ms)
		synctest.Wait()
		if want := []time.Duration{-50 * ms, -100 * ms}; !slices.Equal(c.stood(), want) {
			t.Errorf("left at %v, want %v", c.stood(), want)
		}
		for _, p := range under {
			c.end(p, true)
		}
		if busy, _, _, line := c.counts(); busy != 0 || line != 0 {
			t.Errorf("%d are under way, %d are queued", busy, line)
		}
	})
}

// TestGate_PatienceMayGrow while a request is queued.
func TestGate_PatienceMayGrow(t *testing.T) {
	for _, more := range []time.Duration{0, 1, 2 * time.Second} {
		inCrowd(t, func(t *testing.T, c *crowd) {
			c.passes(t, 256)
			c.mu.Lock()
			c.probes = -1 << 20 // no request starts
			c.mu.Unlock()
			patience := time.Second
			_, ok := c.wait(t.Context(), nil, func() time.Duration {
				left := patience - time.Since(c.start)
				patience = time.Second + more
				return left
			})
			if took := time.Since(c.start); ok || took != time.Second+more {
				t.Errorf("left: %v, after %v", ok, took)
			}
		})
	}
}

// TestGate_WhoeverIsCalledWhileItGivesUpHasLeft: otherwise it would count as under way for ever.
func TestGate_WhoeverIsCalledWhileItGivesUpHasLeft(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		s := &queuedRequest{called: make(chan struct{})}
		c.mu.Lock()
		place := c.line.PushBack(s)
		c.startQueued()
		c.mu.Unlock()
		if p, ok := c.quit(s, place); !ok || p != 0 || c.busy != 1 {
			t.Errorf("left: %v, by %d, %d are under way", ok, p, c.busy)
		}
	})
}
