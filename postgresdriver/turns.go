package postgresdriver

import (
	"context"
	"sync"
)

// turns lets one transaction of this process at a time begin about a key. Otherwise
// those that wait for one row would take all connections.
type turns struct {
	mu   sync.Mutex
	keys map[string]*turn
}

// turn is one key's. Whoever fills the channel has it.
type turn struct {
	taken chan struct{}
	users int
}

// take waits for the turn of a key until ctx ends, and returns what gives it back.
func (t *turns) take(ctx context.Context, key string) (done func(), err error) {
	t.mu.Lock()
	if t.keys == nil {
		t.keys = make(map[string]*turn)
	}
	k := t.keys[key]
	if k == nil {
		k = &turn{taken: make(chan struct{}, 1)}
		t.keys[key] = k
	}
	k.users++
	t.mu.Unlock()
	select {
	case k.taken <- struct{}{}:
		return func() { <-k.taken; t.leave(key, k) }, nil
	case <-ctx.Done():
		t.leave(key, k)
		return nil, ctx.Err()
	}
}

func (t *turns) leave(key string, k *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(t.keys, key)
	}
}
