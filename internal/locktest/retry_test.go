package locktest_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// oneStrategy is W12: goroutines that share a strategy ask as often as one
// alone would, also when they wait for a second time.
func oneStrategy(l *lab, k kind) {
	const goroutines = 64
	// Asked at 0, 5, 55 and 555 ms.
	strategy := leasehold.Backoff{Base: 5 * time.Millisecond, Factor: 10, Attempts: 4}
	const shortest, next = 555 * time.Millisecond, 5 * time.Second
	a, _ := l.client()
	b, m := l.client(leasehold.WithRetry(strategy))
	first := l.enter(k.block, a)
	for wave := range 2 {
		before := m.asked.Load()
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				_, err := k.ask(b, l.key).lock(context.Background())
				held := new(leasehold.HeldError)
				if !errors.As(err, &held) || held.Waited < shortest || held.Waited > next {
					l.Errorf("wave %d: %v after %v", wave, err, held.Waited)
				}
			})
		}
		wg.Wait()
		if asked := m.asked.Load() - before; asked != 4*goroutines {
			l.Errorf("wave %d: %d goroutines asked %d times, want 4 times each", wave, goroutines, asked)
		}
	}
	if n := l.queued(a); n > 0 {
		l.Errorf("%d tickets of waiters that retry", n)
	}
	l.release(first)
}
