package session

import (
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// lastSeen holds a waiter's position and the holder before it, from the last answers. Most
// answers contain only the position.
type lastSeen struct {
	position int
	holder   driver.Holder // the lease that lasts longest; zero if unknown
	at       time.Time     // latest time at which holder.Remaining was correct
}

// answer records the answer to a request that was sent at sent.
func (s *lastSeen) answer(sent time.Time, reply *driver.Reply) {
	if len(reply.Holders) > 0 {
		s.position, s.holder, s.at = reply.Position, reply.Holders[0], sent
		return
	}
	s.moved(reply.Position)
	if reply.Position == 1 {
		s.ask(sent, reply.RetryAfter)
	}
}

// ask records when the store wants the first waiter to ask: when the lease before it
// ends. Another library sends no hint when it releases a key, so a waiter polls often
// there, and next is not the time of the key's expiry.
func (s *lastSeen) ask(now time.Time, next time.Duration) {
	if next > 0 && !s.holder.Foreign {
		s.holder.Remaining, s.at = next, now
	}
}

// moved records the position. If it changed, the lock may have been handed over, so the
// holder is no longer known.
func (s *lastSeen) moved(position int) {
	if position != s.position {
		s.position, s.holder = position, driver.Holder{}
	}
}

// lead records that this waiter is the first of the queue, and when to ask.
func (s *lastSeen) lead(now time.Time, next time.Duration) {
	s.moved(1)
	s.ask(now, next)
}

// now returns the holder at that time, assuming that it has not been renewed since.
func (s *lastSeen) now(now time.Time) driver.Holder {
	h := s.holder
	h.Remaining = max(h.Remaining-now.Sub(s.at), 0)
	return h
}
