package session

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// probe is a task that is due every period after its last sending.
type probe struct {
	task
	period time.Duration
	try    time.Duration

	mu    sync.Mutex
	asked []time.Time
	slack time.Duration
}

func newProbe(period time.Duration) *probe {
	p := &probe{period: period, try: time.Second}
	p.of = p
	return p
}

func (p *probe) Ask(now time.Time) (driver.Ref, time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, now)
	return driver.Ref{Key: fmt.Sprintf("%p", p)}, p.try, true
}

func (p *probe) Answer(sent time.Time, _ driver.Reply, _ error) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.period == 0 {
		return time.Time{}
	}
	return sent.Add(p.period)
}

func (p *probe) Slack() time.Duration { return p.slack }

// take returns how often it was asked since the last take.
func (p *probe) take() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.asked)
	p.asked = nil
	return n
}

// answerAll is a store that answers at once.
func answerAll(_ context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	for i := range refs {
		each(i, driver.Reply{State: driver.Granted}, nil)
	}
}

// settle lets the given time pass, and waits for all that is due by then.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

type renewFunc = func(context.Context, []driver.Ref, func(int, driver.Reply, error))

// inTime runs f in virtual time with a keeper that is closed at the end.
func inTime(t *testing.T, renew renewFunc, f func(t *testing.T, k *keeper)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(renew, time.Now)
		defer k.Close()
		f(t, k)
	})
}

// sentBatch is a request of the keeper.
type sentBatch struct {
	size  int
	limit time.Duration
}

// batches returns a store that answers at once, and the batches that it has received.
func batches() (renewFunc, *[]sentBatch) {
	var mu sync.Mutex
	all := new([]sentBatch)
	return func(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
		deadline, _ := ctx.Deadline()
		mu.Lock()
		*all = append(*all, sentBatch{len(refs), time.Until(deadline)})
		mu.Unlock()
		answerAll(ctx, refs, each)
	}, all
}

func TestKeeper_NearlyDueLeaveInTheSameBatch(t *testing.T) {
	renew, all := batches()
	inTime(t, renew, func(t *testing.T, k *keeper) {
		start := time.Now()
		for i := range 102 {
			p, at := newProbe(0), time.Minute+time.Duration(i)*10*time.Millisecond
			if p.slack = time.Second; i == 101 {
				at = 2 * time.Minute
			}
			k.Add(&p.task, start.Add(at))
		}
		settle(time.Minute + time.Millisecond)
		if len(*all) != 1 || (*all)[0].size != 101 {
			t.Errorf("batches %v", *all)
		}
	})
}

// TestKeeper_BatchesAreBoundedAndOfOneMagnitudeOfTime: a batch has the least time of its tasks.
func TestKeeper_BatchesAreBoundedAndOfOneMagnitudeOfTime(t *testing.T) {
	renew, all := batches()
	inTime(t, renew, func(t *testing.T, k *keeper) {
		for i := range 2500 {
			p := newProbe(0)
			if p.try = time.Hour; i%2 == 0 {
				p.try = 10 * time.Millisecond
			}
			k.Add(&p.task, time.Now().Add(time.Millisecond))
		}
		settle(time.Second)
		counts := make(map[sentBatch]int)
		for _, b := range *all {
			counts[b]++
		}
		want := map[sentBatch]int{{500, time.Hour}: 2, {250, time.Hour}: 1, {500, 10 * ms}: 2, {250, 10 * ms}: 1}
		if !maps.Equal(counts, want) {
			t.Errorf("batches %v", counts)
		}
		for _, tries := range [][]time.Duration{{time.Second, 600 * ms}, {600 * ms, time.Second}} {
			at := time.Now().Add(time.Second)
			for _, try := range tries {
				p := newProbe(0)
				p.try = try
				k.Add(&p.task, at)
			}
			settle(time.Minute)
			if last := (*all)[len(*all)-1]; last != (sentBatch{2, 600 * ms}) {
				t.Errorf("a batch of tasks of %v is %v", tries, last)
			}
		}
	})
}

// TestKeeper_WhatIsHurriedWhileFlying is renewed again at the earliest of the requested times and
// the time of the answer. A task that is added during a renewal stays, even if the answer drops it.
func TestKeeper_WhatIsHurriedWhileFlying(t *testing.T) {
	renew := func(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
		time.Sleep(time.Second)
		answerAll(ctx, refs, each)
	}
	type call struct {
		do func(k *keeper, task *task, at time.Time)
		at time.Duration
	}
	add := func(s int) call { return call{(*keeper).Add, time.Duration(s) * time.Second} }
	hurry := func(s int) call { return call{(*keeper).Hurry, time.Duration(s) * time.Second} }
	remove := call{do: func(k *keeper, task *task, _ time.Time) { k.Remove(task) }}
	for i, c := range []struct {
		period int // of the answers, in seconds; 0 drops it
		calls  []call
		want   int // 0 for never
	}{
		{period: 10, want: 10},
		{period: 10, calls: []call{hurry(5)}, want: 5},
		{period: 10, calls: []call{hurry(7), hurry(5), hurry(6)}, want: 5},
		{period: 10, calls: []call{hurry(60)}, want: 10},
		{calls: []call{add(8)}, want: 8},
		{calls: []call{add(8), hurry(5)}, want: 5},
		{period: 10, calls: []call{add(8)}, want: 8},
		{period: 4, calls: []call{add(8)}, want: 4},
		{calls: []call{hurry(5)}},
		{period: 10, calls: []call{remove}},
		{calls: []call{remove, add(8)}, want: 8},
		{calls: []call{add(8), remove}},
	} {
		inTime(t, renew, func(t *testing.T, k *keeper) {
			start, p := time.Now(), newProbe(time.Duration(c.period)*time.Second)
			k.Add(&p.task, start)
			settle(500 * time.Millisecond)
			for _, call := range c.calls {
				call.do(k, &p.task, start.Add(call.at))
			}
			settle(10 * time.Second)
			var again time.Duration
			if len(p.asked) > 1 {
				again = p.asked[1].Sub(start)
			}
			if again != time.Duration(c.want)*time.Second {
				t.Errorf("row %d: asked at %v, began at %v", i, p.asked, start)
			}
		})
	}
}

// TestKeeper_EveryTaskIsAskedInTime plays random calls and compares the keeper with a model: a
// task that is kept is asked at its time or at most its slack before, and a task that is not kept
// is not asked.
func TestKeeper_EveryTaskIsAskedInTime(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) [3]int {
			return [3]int{rapid.IntRange(0, 4).Draw(r, "task"), rapid.IntRange(0, 3).Draw(r, "call"), rapid.IntRange(0, 5000).Draw(r, "ms")}
		}), 1, 60).Draw(r, "steps")
		synctest.Test(t, func(t *testing.T) {
			k := newKeeper(answerAll, time.Now)
			defer k.Close()
			var probes [5]*probe
			var due [5]time.Time // zero is not kept
			for i := range probes {
				probes[i] = newProbe(0)
				probes[i].slack = time.Duration(i) * 100 * time.Millisecond
			}
			check := func() {
				now := time.Now()
				for i, p := range probes {
					n := p.take()
					switch {
					case n > 1, n == 1 && (due[i].IsZero() || due[i].After(now.Add(p.slack))):
						t.Fatalf("task %d asked %d times, due %v from now", i, n, due[i].Sub(now))
					case n == 0 && !due[i].IsZero() && !due[i].After(now):
						t.Fatalf("task %d not asked, due %v ago", i, now.Sub(due[i]))
					case n == 1:
						due[i] = time.Time{}
					}
					if kept := locked(&k.mu, func() bool { return k.heap.due(&p.task) != 0 }); kept == due[i].IsZero() {
						t.Fatalf("task %d is kept: %v", i, kept)
					}
				}
			}
			for _, s := range steps {
				i, ms := s[0], time.Duration(s[2])*time.Millisecond
				at := time.Now().Add(ms + time.Millisecond)
				switch s[1] {
				case 0:
					k.Add(&probes[i].task, at)
					due[i] = at
				case 1:
					k.Hurry(&probes[i].task, at)
					if !due[i].IsZero() && at.Before(due[i]) {
						due[i] = at
					}
				case 2:
					k.Remove(&probes[i].task)
					due[i] = time.Time{}
				case 3:
					for range ms / (10 * time.Millisecond) {
						settle(10 * time.Millisecond)
						check()
					}
				}
			}
			settle(time.Minute)
			check()
			if n := k.Len(); n != 0 {
				t.Fatalf("%d tasks left", n)
			}
		})
	})
}

// keepMany keeps n probes of a period of a second and a time limit of a second, all due at once.
func keepMany(k *keeper, n int) []*probe {
	all := make([]*probe, n)
	for i := range all {
		all[i] = newProbe(time.Second)
		k.Add(&all[i].task, time.Now())
	}
	return all
}

// longestGap returns the longest time between two renewals of a probe until now.
func longestGap(all []*probe) (longest time.Duration) {
	for _, p := range all {
		for i := range p.asked {
			next := time.Now()
			if i+1 < len(p.asked) {
				next = p.asked[i+1]
			}
			longest = max(longest, next.Sub(p.asked[i]))
		}
	}
	return longest
}

// A store serves 40 batches a second, one after the other, and is to serve 50. Requests that it
// serves after their time limit have failed.
func TestKeeper_AStoreThatFallsBehindRenewsLaterAndFailsNobody(t *testing.T) {
	if testing.Short() {
		skip.Racing(t, "it has many leases, and other tests of the keeper race")
	}
	var failed atomic.Int64
	turn := make(chan struct{}, 1)
	inTime(t, func(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
		turn <- struct{}{}
		time.Sleep(25 * time.Millisecond)
		<-turn
		for i := range refs {
			if ctx.Err() != nil {
				failed.Add(1)
			}
			each(i, driver.Reply{}, ctx.Err())
		}
	}, func(t *testing.T, k *keeper) {
		turn = make(chan struct{}, 1) // of this bubble
		all := keepMany(k, 50*maxBatch)
		settle(8 * time.Second)
		if gap := longestGap(all); failed.Load() > 0 || gap > 2500*time.Millisecond {
			t.Errorf("%d renewals failed, and the longest pause between two was %v", failed.Load(), gap)
		}
	})
}

// A node answers nothing, and has two of three leases.
func TestKeeper_ANodeThatHangsDelaysNoOther(t *testing.T) {
	if testing.Short() {
		skip.Racing(t, "it has many leases, and other tests of the keeper race")
	}
	hangs := make(map[string]bool)
	inTime(t, func(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
		for i, ref := range refs {
			if !hangs[ref.Key] {
				each(i, driver.Reply{}, nil)
			}
		}
		for i, ref := range refs {
			if hangs[ref.Key] {
				<-ctx.Done()
				each(i, driver.Reply{}, ctx.Err())
			}
		}
	}, func(t *testing.T, k *keeper) {
		var healthy []*probe
		k.mu.Lock() // nothing leaves before hangs is complete
		all := make([]*probe, 60*maxBatch)
		for i := range all {
			all[i] = newProbe(time.Second)
			k.schedule(&all[i].task, k.epoch.Instant(time.Now()))
			if i%3 == 0 {
				healthy = append(healthy, all[i])
			} else {
				hangs[fmt.Sprintf("%p", all[i])] = true
			}
		}
		k.mu.Unlock()
		settle(8 * time.Second)
		if gap := longestGap(healthy); gap > 2*time.Second {
			t.Errorf("the longest pause between two renewals of a healthy node was %v", gap)
		}
	})
}
