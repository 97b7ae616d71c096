package roomdriver

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Poll implements Listen for a table that keeps messages and cannot push them: it calls
// fetch at once, and again after each pause, until the subscription is closed, which
// ends its context. fetch returns the messages to an address, and to [Everybody], since
// its last call. An error counts as a call without messages: the next call fetches the
// messages that it missed.
//
// A hand-over to another process is delayed by half a pause on average. Each waiting
// process costs one call of fetch per pause. Less than a millisecond counts as one.
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
