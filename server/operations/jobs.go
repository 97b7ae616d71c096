package operations

import (
	"context"
	"fmt"
	"sync"
)

// jobs are the operations that run. They belong to the service, not to the
// requests that began them.
type jobs struct {
	most int
	// ctx ends when the running operations have to end.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when the last of running ends
}

func newJobs(most int) *jobs {
	j := &jobs{most: most}
	j.ctx, j.cancel = context.WithCancelCause(context.Background())
	return j
}

// begin counts an operation, or returns an error if it may not begin.
func (j *jobs) begin() (end func(), err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ctx.Err() != nil {
		return nil, errDraining
	}
	if j.running == j.most {
		return nil, &refusal{"too-many-waiters", fmt.Sprintf("%d operations run already", j.most)}
	}
	if j.running == 0 {
		j.idle = make(chan struct{})
	}
	j.running++
	return j.end, nil
}

func (j *jobs) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.running--; j.running == 0 {
		close(j.idle)
	}
}

// wait returns when no operation runs, or with the error of ctx.
func (j *jobs) wait(ctx context.Context) error {
	j.mu.Lock()
	running, idle := j.running, j.idle
	j.mu.Unlock()
	if running == 0 {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
