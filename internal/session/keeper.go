package session

import (
	"context"
	"math/bits"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// renewable is a lease or ticket that a task renews. The keeper calls Ask and Answer
// without holding its mutex, and never concurrently for one task.
type renewable interface {
	// Ask returns the ref to renew and the time limit of this try. If ok is false,
	// the keeper drops the task.
	Ask(now time.Time) (ref driver.Ref, try time.Duration, ok bool)
	// Answer receives the outcome of the renewal that was sent at sent, and returns
	// when the next is due. The zero time drops the task.
	Answer(sent time.Time, reply driver.Reply, err error) (next time.Time)
	// Slack returns how early the task may join a batch that leaves anyway. It is constant. The keeper holds its mutex, so Slack must not lock.
	Slack() time.Duration
}

// task is one lease or ticket that the keeper renews. With of set, the zero value is
// ready for Add.
type task struct {
	of renewable

	// Guarded by the keeper's mutex.
	again  clock.Instant // due time that was set while flying
	place  int32         // index in the heap
	flying bool
	added  bool // again was set by Add, so an answer does not drop the task
	gone   bool
	often  bool // see Press
}

// slack returns how early t may join a batch.
func (t *task) slack() clock.Instant {
	slack := t.of.Slack()
	if t.often {
		slack = min(slack, wantedEvery/10)
	}
	return clock.Instant(slack)
}

// keeper renews leases and tickets, using one heap, one timer, and batched renewals of
// all tasks that are due or nearly due. It has goroutines only while batches are under
// way. It is safe for concurrent use.
//
// A store that answers slowly, or a process that has too little of a processor, falls behind.
// The tasks then stay in the heap, where they cost nothing, until a batch is answered; and the
// time limit of a batch begins when it leaves. So each lease is renewed later, and none is lost
// as long as each can be renewed once per TTL.
type keeper struct {
	renew func(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error))
	now   func() time.Time
	epoch clock.Epoch

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	batches limiter // for batches without an answer yet

	mu      sync.Mutex
	heap    dueHeap[task]
	timer   alarmTimer
	sending bool // fire is under way
	closed  bool
}

const (
	// maxBatch bounds the refs of one renewal.
	maxBatch = 1000
	// maxBatches bounds the batches under way that have no answer yet.
	maxBatches = 32
)

// newKeeper returns a keeper that renews with renew and reads the time from now.
func newKeeper(renew func(context.Context, []driver.Ref, func(int, driver.Reply, error)), now func() time.Time) *keeper {
	ctx, cancel := context.WithCancel(context.Background())
	k := &keeper{renew: renew, now: now, epoch: clock.NewEpoch(now()), ctx: ctx, cancel: cancel, batches: limiter{most: maxBatches}}
	k.heap.place = func(t *task) *int32 { return &t.place }
	return k
}

// Add keeps t; its first renewal is due at due.
func (k *keeper) Add(t *task, due time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t.gone, t.added = false, t.flying
	k.schedule(t, k.epoch.Instant(due))
}

// Hurry makes t due at due if it was due later. A task that is not kept is ignored; one
// that is being renewed is renewed again at due.
func (k *keeper) Hurry(t *task, due time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at := k.epoch.Instant(due); t.flying || at < k.heap.due(t) {
		k.schedule(t, at)
	}
}

// Press sets whether t is renewed every wantedEvery, and so joins batches less early.
func (k *keeper) Press(t *task, often bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t.often = often
}

// Remove drops t. The answer of a renewal under way may still reach Answer, but does not
// schedule t again.
func (k *keeper) Remove(t *task) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t.gone = true
	k.heap.remove(t)
}

// Len returns the number of tasks waiting for their time.
func (k *keeper) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.heap.entries)
}

// Close stops all renewals and waits until the current ones have ended.
func (k *keeper) Close() {
	k.mu.Lock()
	k.closed = true
	k.timer.stop()
	k.mu.Unlock()
	k.cancel()
	k.wg.Wait()
}

func (k *keeper) schedule(t *task, due clock.Instant) {
	switch {
	case k.closed || t.gone:
		return
	case t.flying:
		if t.again == 0 || due < t.again {
			t.again = due
		}
		return
	}
	k.heap.set(t, due)
	k.arm()
}

// arm sets the timer to the first due task, unless it fires before anyway.
func (k *keeper) arm() {
	if _, next := k.heap.first(); next != 0 && !k.timer.firesBy(next) {
		k.timer.set(next, k.epoch.Instant(k.now()), k.fire)
	}
}

// fire sends due renewals, until none is due. It runs in the timer's goroutine.
func (k *keeper) fire() {
	k.mu.Lock()
	k.timer.at = 0
	if k.closed || k.sending {
		k.mu.Unlock()
		return
	}
	k.sending = true
	k.wg.Add(1) // under the mutex: Close is not waiting yet
	k.mu.Unlock()
	defer k.wg.Done()
	for {
		span, ok := k.batches.tryStart()
		if !ok {
			span, ok = k.batches.wait(k.ctx, nil, func() time.Duration { return time.Hour })
		}
		if !ok {
			return // closed
		}
		due, now := k.collect()
		if len(due) == 0 {
			k.batches.end(span, false)
			return
		}
		k.sendAll(k.group(due, now), span)
	}
}

// collect takes the due tasks and, if there are any, the nearly due tasks, as many as one batch
// may have. If there are none it sets the timer, and fire ends.
func (k *keeper) collect() (due []*task, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now = k.now()
	instant := k.epoch.Instant(now)
	for len(due) < maxBatch {
		t, at := k.heap.first()
		if t == nil || at > instant && (len(due) == 0 || at > instant+t.slack()) {
			break
		}
		k.heap.remove(t)
		t.flying, t.again = true, 0
		due = append(due, t)
	}
	if len(due) == 0 {
		k.sending = false
		k.arm()
	}
	return due, now
}

// batch is one renewal of tasks with similar time limits.
type batch struct {
	tasks []*task
	refs  []driver.Ref
	try   time.Duration
}

// group groups tasks by the order of magnitude of their time limits, so that a lease of
// seconds does not shorten the try of a lease of hours.
func (k *keeper) group(due []*task, now time.Time) (all []*batch) {
	open := make(map[int]*batch)
	for _, t := range due {
		ref, try, ok := t.of.Ask(now)
		if !ok {
			k.landed(t, time.Time{})
			continue
		}
		size := bits.Len64(uint64(max(try, 0)))
		b := open[size]
		if b == nil {
			b = &batch{try: try}
			open[size] = b
			all = append(all, b)
		}
		b.tasks = append(b.tasks, t)
		b.refs = append(b.refs, ref)
		b.try = min(b.try, try)
	}
	return all
}

// sendAll sends batches that started in span, and counts their end with the first answer.
func (k *keeper) sendAll(all []*batch, span spanNumber) {
	var once sync.Once
	end := func(answered bool) { once.Do(func() { k.batches.end(span, answered) }) }
	k.wg.Go(func() {
		var sent sync.WaitGroup
		for _, b := range all {
			sent.Go(func() { k.send(b, end) })
		}
		sent.Wait()
		end(false)
	})
}

// send sends a batch, and calls end(true) at each answer.
func (k *keeper) send(b *batch, end func(answered bool)) {
	ctx, cancel := context.WithTimeout(k.ctx, b.try)
	defer cancel()
	sent := k.now() // before the request leaves: the store counts from later
	k.renew(ctx, b.refs, func(i int, reply driver.Reply, err error) {
		if err == nil {
			end(true)
		}
		k.landed(b.tasks[i], b.tasks[i].of.Answer(sent, reply, err))
	})
}

// landed schedules a task whose renewal has ended.
func (k *keeper) landed(t *task, next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t.flying = false
	at := k.epoch.Instant(next)
	if at == 0 && !t.added {
		return
	}
	if at == 0 || t.again != 0 && t.again < at {
		at = t.again
	}
	t.added = false
	k.schedule(t, at)
}
