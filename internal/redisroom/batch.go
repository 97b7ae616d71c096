package redisroom

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// maxBatch is the most requests of one pipeline.
const maxBatch = 128

// Batcher lets concurrent requests share a round trip. A request that finds a free lane
// is sent at once, on its caller's goroutine. While all lanes are busy, requests gather;
// they are sent in one pipeline as soon as a lane is free. No request waits for requests
// that may come later.
//
// Its methods are safe for concurrent use.
type Batcher struct {
	// Lanes is how many requests are sent separately before requests share a pipeline.
	Lanes int
	// One runs a single request. Many runs the requests of several callers in a
	// pipeline, which only the client's timeout ends. All are set before the first request.
	One  func(ctx context.Context, words []string) (any, error)
	Many func(requests []*Request)

	mu    sync.Mutex
	busy  int
	queue []*Request
	ended bool
	lanes sync.WaitGroup // busy lanes

	ctx     context.Context // of started functions; nil before the first
	cancel  context.CancelFunc
	started sync.WaitGroup
}

// Start runs f on a goroutine, with a context that Stop ends. After Stop it does not run f.
func (b *Batcher) Start(f func(context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	if b.cancel == nil {
		b.ctx, b.cancel = context.WithCancel(context.Background())
	}
	ctx := b.ctx
	b.started.Go(func() { f(ctx) })
}

// Stop ends the contexts of started functions, and waits for these. No request begins later.
func (b *Batcher) Stop() {
	b.mu.Lock()
	b.ended = true
	if b.cancel != nil {
		b.cancel()
	}
	b.mu.Unlock()
	b.started.Wait()
}

// Wait is Stop, and waits for the requests that are under way, too.
func (b *Batcher) Wait() {
	b.Stop()
	b.lanes.Wait()
}

// Request is a request that waits for a lane.
type Request struct {
	Words []string
	// Reply and Err are the outcome, as Client.Do has it. Many sets them.
	Reply any
	Err   error

	done chan struct{}
}

// Do runs a request, alone or in a pipeline.
func (b *Batcher) Do(ctx context.Context, words []string) (any, error) {
	b.mu.Lock()
	if b.ended {
		b.mu.Unlock()
		return nil, ErrClosed
	}
	if b.busy < b.Lanes {
		b.busy++
		b.lanes.Add(1)
		b.mu.Unlock()
		defer b.lanes.Done()
		defer b.next()
		return b.One(ctx, words)
	}
	j := &Request{Words: words, done: make(chan struct{})}
	b.queue = append(b.queue, j)
	b.mu.Unlock()

	if cause := Wait(ctx, j.done); cause != nil {
		return nil, b.abandon(j, cause)
	}
	return j.Reply, j.Err
}

// Wait waits until done is closed. If ctx ends first it returns the cause; a deadline counts also
// if the context's Done is late.
func Wait(ctx context.Context, done <-chan struct{}) error {
	var late <-chan time.Time
	if deadline, ok := ctx.Deadline(); ok {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late:
		return context.DeadlineExceeded
	}
}

// next frees the lane of a request that has returned, or runs the requests that have
// gathered.
func (b *Batcher) next() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.busy--
		return
	}
	b.lanes.Go(b.drain)
}

// drain sends all gathered requests.
func (b *Batcher) drain() {
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

		b.Many(jobs)
		for _, j := range jobs {
			close(j.done)
		}
	}
}

// abandon gives up a request whose caller has left. If the request was sent, its answer
// is dropped.
func (b *Batcher) abandon(j *Request, cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.queue, j)
	if i < 0 {
		return cause
	}
	b.queue = slices.Delete(b.queue, i, i+1)
	return fmt.Errorf("%w: not sent: %w", driver.ErrUnavailable, cause)
}
