package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
)

// witness stands at the resource: it sees who believes to hold the lock.
type witness struct {
	tb testing.TB

	mu     sync.Mutex
	last   *leasehold.Lease // the newest grant, until its release begins
	token  int64
	grants int
}

// enter notes a grant. Beliefs are compared on one clock: whoever was there
// before must not believe any more.
func (w *witness) enter(l *leasehold.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.Context().Err() != nil {
		return
	}
	if w.last != nil && w.last.Context().Err() == nil {
		w.tb.Errorf("two holders: tokens %d and %d", w.last.Token(), l.Token())
	}
	if l.Token() <= w.token {
		w.tb.Errorf("token %d after %d", l.Token(), w.token)
	}
	w.last, w.token = l, max(w.token, l.Token())
	w.grants++
}

// leave notes that a holder is about to release.
func (w *witness) leave(l *leasehold.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == l {
		w.last = nil
	}
}

// crowd is W1 in one process: contenders of many clients, whose holders die.
func crowd(l *lab) {
	const clients, contenders, lasting = 5, 8, 6 * time.Second
	w := &witness{tb: l.T}
	end := time.Now().Add(lasting)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for time.Now().Before(end) {
				l.generation(w, contenders, end)
			}
		})
	}
	wg.Wait()
	if w.grants < 20 {
		l.Errorf("only %d grants in %v", w.grants, lasting)
	}
	l.wantFree(20 * time.Second) // the tickets of the dead live for 15 s
}

// generation is a process with some contenders, which lives until one of them
// dies with the lock in its hands.
func (l *lab) generation(w *witness, contenders int, end time.Time) {
	m := &mortal{Driver: l.config.Open(l.T)}
	c, err := leasehold.New(m.as(), leasehold.WithTTL(300*time.Millisecond), leasehold.WithReleaseTimeout(time.Second))
	if err != nil {
		l.Error(err)
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	var wg sync.WaitGroup
	for range contenders {
		wg.Go(func() {
			for ctx.Err() == nil {
				lease, err := c.Mutex(l.key).Lock(ctx)
				if err != nil {
					if ctx.Err() == nil {
						l.Errorf("lock: %v", err)
					}
					return
				}
				w.enter(lease)
				time.Sleep(rand.N(5 * time.Millisecond))
				if rand.IntN(100) == 0 {
					m.die()
					cancel() // of the others, which are dead too
					return   // the lease ends by itself
				}
				w.leave(lease)
				if err := lease.Release(); err != nil && !errors.Is(err, leasehold.ErrLost) && !m.isDead() && ctx.Err() == nil {
					l.Errorf("release: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if err := c.Close(); err != nil && !m.isDead() {
		l.Errorf("close: %v", err)
	}
}
