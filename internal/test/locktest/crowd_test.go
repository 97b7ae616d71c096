package locktest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
)

// mortality is the time to live of the leases of a crowd.
const mortality = 300 * time.Millisecond

// crowd is W1 in one process: contenders of many clients, which mix all kinds
// of lock, and die.
func crowd(l *lab) {
	const clients, enough = 4, 100
	lasting := 6 * time.Second
	if testing.Short() {
		lasting /= 2
	}
	w := &witness{start: time.Now()}
	var wg sync.WaitGroup
	goesOn := func() bool {
		if lasts := time.Since(w.start); lasts > lasting {
			return l.store.real && lasts < 2*patience && w.granted() < enough
		}
		return true
	}
	for i := range clients {
		wg.Go(func() {
			for n := 0; goesOn(); n++ {
				l.generation(fmt.Sprintf("%d-%d", i, n), w)
			}
		})
	}
	wg.Wait()
	wrong := w.judge()
	for _, wrong := range wrong[:min(len(wrong), 20)] {
		l.Error(wrong)
	}
	l.Logf("%d grants, %d violations", w.granted(), len(wrong))
	if n := w.granted(); n < enough {
		l.Errorf("only %d grants in %v", n, time.Since(w.start))
	}
}

// generation runs a process with some contenders and kills it while they work: from then on its
// requests no longer reach the store. The contenders still run for a while.
func (l *lab) generation(name string, w *witness) {
	const contenders, pause = 10, 20 * time.Millisecond
	m := l.process()
	client, err := leasehold.New(m, leasehold.WithTTL(mortality), leasehold.WithReleaseTimeout(time.Second))
	if err != nil {
		l.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second+rand.N(time.Second)+2*mortality)
	defer cancel()
	deadline, _ := ctx.Deadline()
	time.AfterFunc(time.Until(deadline)-2*mortality, m.die)
	var wg sync.WaitGroup
	for i := range contenders {
		c := &contender{l, client, fmt.Sprintf("%s.%d", name, i), w}
		wg.Go(func() {
			for ctx.Err() == nil {
				acts[rand.IntN(len(acts))](c, ctx)
				time.Sleep(rand.N(pause + 1))
			}
		})
	}
	wg.Wait()
	_ = client.Close() // it cannot give anything back
}
