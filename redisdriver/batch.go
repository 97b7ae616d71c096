package redisdriver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// lanes is how many requests are sent by themselves before others share a pipeline, and
// maxBatch the most requests of one pipeline.
const (
	lanes    = 4
	maxBatch = 128
)

// batcher lets concurrent requests share a round trip. A request that finds a free lane
// is sent at once, on its caller's goroutine. While all lanes are busy, requests gather;
// they are sent in one pipeline as soon as a lane is free. No request waits for others
// that might come.
type batcher struct {
	one  func(ctx context.Context, words []string) (any, error)
	many func(jobs []*pendingRequest)

	mu    sync.Mutex
	busy  int
	queue []*pendingRequest
	ended bool
	wg    sync.WaitGroup // lanes that run pipelines, and what was started
}

// start runs f on a goroutine that wait waits for. It runs nothing after wait.
func (b *batcher) start(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.wg.Go(f)
	}
}

// wait waits until nothing is under way. Nothing is started after it.
func (b *batcher) wait() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.wg.Wait()
}

// pendingRequest is a request that waits for a lane.
type pendingRequest struct {
	words []string
	done  chan struct{}
	reply any
	err   error
}

// do runs a request, by itself or in a pipeline.
func (b *batcher) do(ctx context.Context, words []string) (any, error) {
	b.mu.Lock()
	if b.busy < lanes {
		b.busy++
		b.mu.Unlock()
		defer b.next()
		return b.one(ctx, words)
	}
	j := &pendingRequest{words: words, done: make(chan struct{})}
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
		return nil, b.abandon(j, context.Cause(ctx))
	case <-late:
		return nil, b.abandon(j, context.DeadlineExceeded)
	}
}

// next frees the lane of a request that has returned, or runs the requests that have
// gathered.
func (b *batcher) next() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.busy--
		return
	}
	b.wg.Go(b.drain)
}

// drain sends gathered requests until there are none.
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

// abandon gives up a request whose caller has left. If the request was sent, its answer
// is dropped.
func (b *batcher) abandon(j *pendingRequest, cause error) error {
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
func (c *adapter) one(ctx context.Context, words []string) (any, error) {
	try := c.begin(ctx)
	defer try.End()
	cmd := newCommand(try, words)
	return c.result(try, cmd, c.single.Process(try, cmd))
}

// many runs requests of several callers in a pipeline. Only the timeout ends it.
func (c *adapter) many(jobs []*pendingRequest) {
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
