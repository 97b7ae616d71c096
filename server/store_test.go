package server_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// call is a request to a store. A look has only the key of a reference.
type call struct {
	verb string // the method, in lower case
	driver.Ref
}

type next = func() (driver.Reply, error)

// hooked is a store that passes its requests through around, which may delay or refuse them and
// change their answers. A batch of renewals is a call about its first lease.
type hooked struct {
	*memdriver.Driver
	around func(ctx context.Context, c call, next next) (driver.Reply, error)
}

// before returns a store that calls f at each request, which f may delay or refuse.
func before(d *memdriver.Driver, f func(ctx context.Context, c call) error) *hooked {
	return &hooked{d, func(ctx context.Context, c call, next next) (driver.Reply, error) {
		if err := f(ctx, c); err != nil {
			return driver.Reply{}, err
		}
		return next()
	}}
}

// acquires returns a store that calls f at each acquire.
func acquires(d *memdriver.Driver, f func(id string) error) *hooked {
	return before(d, func(_ context.Context, c call) error {
		if c.verb != "acquire" {
			return nil
		}
		return f(c.ID)
	})
}

// after returns a store that calls f with each answer about a lease, which f may delay, or replace
// by an error.
func after(d *memdriver.Driver, f func(c call, reply driver.Reply) error) *hooked {
	return &hooked{d, func(_ context.Context, c call, next next) (driver.Reply, error) {
		reply, err := next()
		if err == nil && c.ID != "" {
			err = f(c, reply)
		}
		return reply, err
	}}
}

// mute returns a store that does not answer the verbs.
func mute(verbs ...string) *hooked {
	return before(memdriver.New(), func(ctx context.Context, c call) error {
		if !slices.Contains(verbs, c.verb) {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

var errDefect = errors.New("defect")

// broken returns a store that answers every request with err, or panics if err is nil.
func broken(err error) *hooked {
	var watched atomic.Bool
	return before(memdriver.New(), func(_ context.Context, c call) error {
		switch {
		case c.verb == "watch" && watched.CompareAndSwap(false, true):
			return errDefect // in server.New, which must not panic
		case err == nil:
			panic("defect")
		}
		return err
	})
}

func (s *hooked) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	return s.around(ctx, call{"acquire", driver.Ref{Key: req.Key, ID: req.ID}}, func() (driver.Reply, error) {
		return s.Driver.Acquire(ctx, req)
	})
}

func (s *hooked) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	replies, errs := make([]driver.Reply, len(refs)), make([]error, len(refs))
	first, err := s.around(ctx, call{"renew", refs[0]}, func() (driver.Reply, error) {
		s.Driver.Renew(ctx, refs, func(i int, reply driver.Reply, err error) { replies[i], errs[i] = reply, err })
		return replies[0], errs[0]
	})
	replies[0] = first
	for i := range refs {
		each(i, replies[i], cmp.Or(err, errs[i]))
	}
}

func (s *hooked) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	return s.around(ctx, call{"release", ref}, func() (driver.Reply, error) { return s.Driver.Release(ctx, ref) })
}

func (s *hooked) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	return s.around(ctx, call{"break", driver.Ref{Key: key, ID: id}}, func() (driver.Reply, error) {
		return s.Driver.Break(ctx, key, id, reason)
	})
}

// look passes a request that is about no lease through around.
func (s *hooked) look(ctx context.Context, verb, key string, do func() error) error {
	_, err := s.around(ctx, call{verb, driver.Ref{Key: key}}, func() (driver.Reply, error) { return driver.Reply{}, do() })
	return err
}

func (s *hooked) Inspect(ctx context.Context, key string) (snap driver.Snapshot, err error) {
	err = s.look(ctx, "inspect", key, func() error {
		snap, err = s.Driver.Inspect(ctx, key)
		return err
	})
	return snap, err
}

func (s *hooked) Glance(ctx context.Context, key string) (snap driver.Snapshot, err error) {
	err = s.look(ctx, "glance", key, func() error {
		snap, err = s.Driver.Glance(ctx, key)
		return err
	})
	return snap, err
}

func (s *hooked) List(ctx context.Context, prefix, cursor string) (keys []string, next string, err error) {
	err = s.look(ctx, "list", "", func() error {
		keys, next, err = s.Driver.List(ctx, prefix, cursor)
		return err
	})
	return keys, next, err
}

func (s *hooked) Watch(f func(driver.Hint)) (sub driver.Subscription, err error) {
	err = s.look(context.Background(), "watch", "", func() error {
		sub, err = s.Driver.Watch(f)
		return err
	})
	return sub, err
}
