package server_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
)

type (
	message = intercept.Message
	sender  = func(context.Context) error
)

// before returns a store that calls f before each message, which f may delay or refuse.
func before(d driver.Driver, f func(ctx context.Context, m *message) error) *intercept.Driver {
	return intercept.New(d, func(ctx context.Context, m *message, send sender) error {
		if m.Verb != intercept.Close {
			if err := f(ctx, m); err != nil {
				return err
			}
		}
		return send(ctx)
	})
}

// acquires returns a store that calls f before each acquire.
func acquires(d driver.Driver, f func() error) *intercept.Driver {
	return before(d, func(_ context.Context, m *message) error {
		if m.Verb != intercept.Acquire {
			return nil
		}
		return f()
	})
}

// after returns a store that calls f after each answer about a lease, which f may delay, or replace
// by an error.
func after(d driver.Driver, f func(m *message) error) *intercept.Driver {
	return intercept.New(d, func(ctx context.Context, m *message, send sender) error {
		err := send(ctx)
		ofLeases := []intercept.Verb{intercept.Acquire, intercept.Renew, intercept.Release, intercept.Break}
		if err == nil && slices.Contains(ofLeases, m.Verb) {
			err = f(m)
		}
		return err
	})
}

// mute returns a store that does not answer the verbs.
func mute(verbs ...intercept.Verb) *intercept.Driver {
	return before(memdriver.New(), func(ctx context.Context, m *message) error {
		if !slices.Contains(verbs, m.Verb) {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// broken is a store that answers every request with err, or panics if err is nil.
type broken struct {
	*intercept.Driver
	err     error
	watched atomic.Bool
}

func newBroken(err error) *broken {
	b := &broken{err: err}
	b.Driver = before(memdriver.New(), func(context.Context, *message) error { return b.fail() })
	return b
}

func (b *broken) fail() error {
	if b.err == nil {
		panic("defect")
	}
	return b.err
}

// Watch fails without a panic for server.New.
func (b *broken) Watch(func(driver.Hint)) (driver.Subscription, error) {
	if b.watched.CompareAndSwap(false, true) {
		return nil, errors.New("not yet")
	}
	return nil, b.fail()
}
