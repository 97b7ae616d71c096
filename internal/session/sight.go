package session

import (
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// sight is what a waiter knows of what is before it, from the last answers: most
// tell the place only.
type sight struct {
	position int
	holder   driver.Holder // the lease that stays longest; zero if it is not known
	at       time.Time     // when holder.Remaining was true, at the latest
}

// answer takes note of what the store said to a question that was sent at sent.
func (s *sight) answer(sent time.Time, reply *driver.Reply) {
	if len(reply.Holders) > 0 {
		s.position, s.holder, s.at = reply.Position, reply.Holders[0], sent
		return
	}
	s.moved(reply.Position)
	if reply.Position == 1 {
		s.ask(sent, reply.RetryAfter)
	}
}

// ask takes note of when the store bids the first of the queue ask: when the lease before it
// ends. Another library tells nobody when it gives a key back, so a waiter asks often there, which
// says nothing of the key's end.
func (s *sight) ask(now time.Time, next time.Duration) {
	if next > 0 && !s.holder.Foreign {
		s.holder.Remaining, s.at = next, now
	}
}

// moved takes note of the place. Whoever moves up may do so because the lock was
// handed over, so that it is not known any more who holds it.
func (s *sight) moved(position int) {
	if position != s.position {
		s.position, s.holder = position, driver.Holder{}
	}
}

// lead takes note that the store takes us for the first of the queue, and of when
// it bids us ask.
func (s *sight) lead(now time.Time, next time.Duration) {
	s.moved(1)
	s.ask(now, next)
}

// now is the holder as it is at that time, if it has not been renewed since.
func (s *sight) now(now time.Time) driver.Holder {
	h := s.holder
	h.Remaining = max(h.Remaining-now.Sub(s.at), 0)
	return h
}
