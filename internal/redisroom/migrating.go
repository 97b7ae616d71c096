package redisroom

import (
	"context"
	_ "embed"
	"errors"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// While a cluster moves a slot, it serves no script of several keys there
// unless all of them exist, and are on one of the two nodes: TRYAGAIN. That
// takes milliseconds for a slot with few keys, but minutes for a large one, or
// if whoever moves it stops half-way. So requests are repeated for the time
// they have, and the lease of a lone holder is renewed and released by its one
// key. A lock that is free cannot be taken as long.

// Bounds of the pause before a request in a slot that moves is repeated.
const (
	minSettle = 10 * time.Millisecond
	maxSettle = 100 * time.Millisecond
)

// isMigrating reports whether nothing was done because the slot moves.
func isMigrating(err error) bool {
	if err == nil {
		return false
	}
	var reply ReplyError
	return errors.As(err, &reply) && strings.HasPrefix(string(reply), "TRYAGAIN")
}

// settle repeats a request that failed with err for as long as its slot moves,
// but no longer than the timeout of a request.
func (s *Store) settle(ctx context.Context, err error, request func() error) error {
	end := s.end(ctx, 0)
	for pause := minSettle; isMigrating(err) && time.Until(end) > pause; pause = min(2*pause, maxSettle) {
		select {
		case <-time.After(pause):
			err = request()
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// end is when a request of several steps has to be over: with ctx, whose Done
// channel need not close at its deadline, and after the timeout at the latest,
// but not before a least time has passed.
func (s *Store) end(ctx context.Context, least time.Duration) time.Time {
	now := time.Now()
	end := now.Add(s.timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	if soonest := now.Add(least); end.Before(soonest) {
		end = soonest
	}
	return end
}

//go:embed lua/alone.lua
var aloneLua string

var aloneScript = newFreeingScript(aloneLua)

// aloneCommand encodes the renewal or the release of a lone holder's lease by
// its one key, and by that of its id if that is to be remembered.
func (s *Store) aloneCommand(ref *driver.Ref, renew bool) []string {
	c := newCommand()
	h := c.holder(s.prefix, ref.Key)
	keys, number := 1, ref.TTL.Milliseconds()
	if !renew {
		if number = spentLife(ref); number > 0 {
			c.spent(h, ref.ID)
			keys++
		}
	}
	c.id(ref.ID)
	if renew || number > 0 {
		c.int(number)
	}
	return c.build(s.form(aloneScript), keys)
}

// releaseMigrating is Release while a slot moves. Of the shorter way the outcome may
// remain unknown, and so of both, whatever the longer one says.
func (s *Store) releaseMigrating(ctx context.Context, ref *driver.Ref, cmd []string) (driver.Reply, error) {
	done, tried := s.releaseAlone(ctx, ref)
	if done {
		return driver.Reply{State: driver.Released}, nil
	}
	reply, err := s.run(ctx, releaseScript, cmd)
	if err != nil && tried != nil && !errors.Is(tried, driver.ErrUnavailable) {
		err = timing.Uncertain(err)
	}
	if err != nil {
		return driver.Reply{}, err
	}
	return parseRelease(reply)
}

// releaseAlone releases the lease of a lone holder by its one key, which a slot
// that moves does not hinder and which costs less than three. It reports whether
// it could. Where the id is to be remembered there are two, of which a slot that
// moves lacks one.
func (s *Store) releaseAlone(ctx context.Context, ref *driver.Ref) (bool, error) {
	if ref.KeepClosed > 0 || ref.RejectIDFor > 0 && !ref.SingleUseID || ref.Visit != "" {
		return false, nil // that is not in the one key
	}
	reply, err := s.attempt(ctx, aloneScript, s.aloneCommand(ref, false))
	if isMigrating(err) {
		return false, nil
	}
	return err == nil && reply == int64(1), classify(err)
}
