package roomdriver

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Poll is the Listen of a table that keeps messages and cannot push them: it calls
// fetch at once, and again after each pause, until the subscription is closed, which
// ends its context. fetch returns the messages to an address, and those to [Everybody],
// that have come since its last call. An error is no more than a call that found nothing: what it missed
// is for the next one.
//
// The pause is what a waiter in another process loses at a hand-over, half of it on
// average; one call of fetch per pause is what each process that waits costs. Less than a
// millisecond counts as one.
func Poll(receive func(body string), pause time.Duration, fetch func(ctx context.Context, address string) (bodies []string, err error)) driver.Subscription {
	ctx, cancel := context.WithCancel(context.Background())
	p := &poll{address: rand.Text(), cancel: cancel}
	p.work.Go(func() {
		ticker := time.NewTicker(max(pause, time.Millisecond))
		defer ticker.Stop()
		for ctx.Err() == nil {
			bodies, _ := fetch(ctx, p.address)
			for _, body := range bodies {
				receive(body)
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	})
	return p
}

type poll struct {
	address string
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

// Address implements [driver.Subscription].
func (p *poll) Address() string { return p.address }

// Close implements [driver.Subscription].
func (p *poll) Close() error {
	p.cancel()
	p.work.Wait()
	return nil
}
