package locktest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
)

// crowd is W1 in one process: contenders of many clients, which mix all kinds
// of lock, and die.
func crowd(l *lab) {
	const clients, contenders, enough = 4, 10, 100
	lasting := 6 * time.Second
	if testing.Short() {
		lasting /= 2
	}
	start := time.Now()
	var w Witness
	var deaths atomic.Int64
	var wg sync.WaitGroup
	goesOn := func() bool {
		if lasts := time.Since(start); lasts > lasting {
			return l.store.real && lasts < 2*patience && w.granted() < enough
		}
		return true
	}
	for i := range clients {
		wg.Go(func() {
			for n := 0; goesOn(); n++ {
				l.generation(fmt.Sprintf("%d-%d", i, n), contenders, &w, start)
				deaths.Add(1)
			}
		})
	}
	wg.Wait()
	wrong := w.Judge()
	for _, wrong := range wrong[:min(len(wrong), 20)] {
		l.Error(wrong)
	}
	l.Logf("%d grants, %d deaths, %d violations", w.granted(), deaths.Load(), len(wrong))
	if n := w.granted(); n < enough {
		l.Errorf("only %d grants in %v", n, time.Since(start))
	}
}

// generation runs a process with some contenders and kills it while they work: from then on its
// requests no longer reach the store. The contenders still run for a while.
func (l *lab) generation(name string, contenders int, w *Witness, start time.Time) {
	const ttl = 300 * time.Millisecond
	m := l.process()
	c, err := leasehold.New(m.as(), leasehold.WithTTL(ttl), leasehold.WithReleaseTimeout(time.Second))
	if err != nil {
		l.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second+rand.N(time.Second)+2*ttl)
	defer cancel()
	deadline, _ := ctx.Deadline()
	time.AfterFunc(time.Until(deadline)-2*ttl, m.die)
	mix := &Mix{
		Client: c, Name: name, Prefix: l.key + "/", TTL: ttl, Pause: 20 * time.Millisecond,
		Now: func() int64 { return int64(time.Since(start)) }, See: w.See,
		Did:  func(string) {},
		Fail: func(err error) { l.Errorf("%s: %v", name, err) },
	}
	mix.Run(ctx, contenders, Acts...)
	_ = c.Close() // it cannot give anything back
}
