package redisdriver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// lanes is how many requests travel by themselves before others travel
// together, and maxBatch how many do at most.
const (
	lanes    = 4
	maxBatch = 128
)

// batcher lets requests that are made at the same time share a round trip. One
// that finds a free lane leaves at once, by itself, on its caller's goroutine.
// While all lanes are busy others gather, and leave in one pipeline as soon as a
// lane is free: nobody waits for company that might come.
type batcher struct {
	one  func(ctx context.Context, words []string) (any, error)
	many func(jobs []*job)

	mu    sync.Mutex
	busy  int
	queue []*job
	ended bool
	wg    sync.WaitGroup // lanes that run pipelines, and what was started
}

// start runs f on a goroutine that wait waits for, unless it has begun to.
func (b *batcher) start(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.wg.Go(f)
	}
}

// wait waits until nothing is under way. Nothing is started any more.
func (b *batcher) wait() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.wg.Wait()
}

// job is a request that waits for a lane.
type job struct {
	words []string
	done  chan struct{}
	reply any
	err   error
}

// do runs a request, alone or together with others.
func (b *batcher) do(ctx context.Context, words []string) (any, error) {
	b.mu.Lock()
	if b.busy < lanes {
		b.busy++
		b.mu.Unlock()
		defer b.next()
		return b.one(ctx, words)
	}
	j := &job{words: words, done: make(chan struct{})}
	b.queue = append(b.queue, j)
	b.mu.Unlock()

	var late <-chan time.Time
	if deadline, ok := ctx.Deadline(); ok {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-j.done:
		return j.reply, j.err
	case <-ctx.Done():
		return nil, b.quit(j, context.Cause(ctx))
	case <-late:
		return nil, b.quit(j, context.DeadlineExceeded)
	}
}

// next passes on the lane of a request that has returned.
func (b *batcher) next() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.busy--
		return
	}
	b.wg.Go(b.drain)
}

// drain runs what has gathered, for as long as something does.
func (b *batcher) drain() {
	for {
		b.mu.Lock()
		n := min(len(b.queue), maxBatch)
		if n == 0 {
			b.busy--
			b.mu.Unlock()
			return
		}
		jobs := slices.Clone(b.queue[:n])
		b.queue = slices.Delete(b.queue, 0, n)
		b.mu.Unlock()

		b.many(jobs)
		for _, j := range jobs {
			close(j.done)
		}
	}
}

// quit gives up a job for which nobody waits any longer. If it has left already
// nobody will hear its answer.
func (b *batcher) quit(j *job, cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.queue, j)
	if i < 0 {
		return cause
	}
	b.queue = slices.Delete(b.queue, i, i+1)
	return fmt.Errorf("%w: not sent: %w", driver.ErrUnavailable, cause)
}

// one runs a request by itself.
func (c *seam) one(ctx context.Context, words []string) (any, error) {
	try := c.begin(ctx)
	defer try.End()
	cmd := newCommand(try, words)
	return c.result(try, cmd, c.single.Process(try, cmd))
}

// many runs requests of several callers. No context of theirs ends it, but the
// timeout does.
func (c *seam) many(jobs []*job) {
	try := c.begin(context.Background())
	defer try.End()
	pipe := c.single.Pipeline()
	cmds := make([]*command, len(jobs))
	for i, j := range jobs {
		cmds[i] = newCommand(try, j.words)
		_ = pipe.Process(try, cmds[i])
	}
	_, err := pipe.Exec(try) // what was written has an error of its own
	for i, j := range jobs {
		j.reply, j.err = c.result(try, cmds[i], err)
	}
}
