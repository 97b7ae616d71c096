package redisroom

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// While a cluster moves a slot, it serves a script of several keys there only if all of them
// exist on one of the two nodes; otherwise it answers TRYAGAIN. That takes milliseconds for a
// slot with few keys, but minutes for a large one, or if the move stops half-way. So requests
// are repeated for the time they have, and an uncontended lease is renewed and released by its
// one key. A free lock cannot be taken during the move.

// Bounds of the pause before a request in a slot that moves is repeated.
const (
	minSettle = 10 * time.Millisecond
	maxSettle = 100 * time.Millisecond
)

// isMigrating reports whether a request had no effect because the slot moves.
func isMigrating(err error) bool {
	if err == nil {
		return false
	}
	var reply ReplyError
	return errors.As(err, &reply) && strings.HasPrefix(string(reply), "TRYAGAIN")
}

// retryWhileMoving repeats a request that failed with err while its slot moves, for at most the
// timeout of a request.
func (s *Store) retryWhileMoving(ctx context.Context, err error, request func() error) error {
	end := s.deadline(ctx, 0)
	for pause := minSettle; isMigrating(err) && time.Until(end) > pause; pause = min(2*pause, maxSettle) {
		if !timing.Sleep(ctx, pause) {
			return err
		}
		err = request()
	}
	return err
}

// deadline returns when a request of several steps has to be over: at the end of ctx, and after the
// timeout at the latest, but not before least has passed.
func (s *Store) deadline(ctx context.Context, least time.Duration) time.Time {
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

var uncontendedScript = newFreeingScript("uncontended")

// uncontendedCommand encodes the renewal or release of an uncontended lease by its holder key,
// and the key of its id if that is to be remembered.
func (s *Store) uncontendedCommand(ref *driver.Ref, renew bool) *command {
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
	if renew && ref.Visit != "" {
		c.word(ref.Visit)
	}
	return c.build(s.form(uncontendedScript), keys)
}

// releaseMigrating is Release while a slot moves. If the release by the holder key has an
// unknown outcome, so has the call, whatever the full release returns.
func (s *Store) releaseMigrating(ctx context.Context, ref *driver.Ref, cmd *command) (driver.Reply, error) {
	defer cmd.free()
	done, tried := s.releaseUncontended(ctx, ref)
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

// releaseUncontended releases an uncontended lease by its holder key, and reports whether it
// did. One key costs less than three, and works in a moving slot. To remember the id takes
// a second key, which a moving slot lacks.
func (s *Store) releaseUncontended(ctx context.Context, ref *driver.Ref) (bool, error) {
	if ref.KeepClosed > 0 || ref.RejectIDFor > 0 && !ref.SingleUseID || ref.Visit != "" {
		return false, nil // the holder key does not hold that
	}
	cmd := s.uncontendedCommand(ref, false)
	answer := s.attempt(ctx, uncontendedScript, cmd, Acks{})
	cmd.free()
	if isMigrating(answer.Err) {
		return false, nil
	}
	return answer.Err == nil && answer.Reply == int64(1), classify(answer.Err)
}
