package room

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// scene is one call on a record: the record, the time, the caller's id, and the hints to
// send.
type scene struct {
	*Record
	now    int64 // µs
	ms     int64
	caller string // the id that asks; it is answered, not hinted
	wakes  []Wake
}

func open(r *Record, now int64, caller string) *scene {
	s := &scene{Record: r, now: now, ms: now / 1000, caller: caller}
	s.purge()
	return s
}

// purge removes expired parties. If a hand-over was not confirmed, or a call not answered,
// the process that it went to becomes suspect: it is assumed to have died, with all its
// earlier requests.
func (s *scene) purge() {
	s.Inside = slices.DeleteFunc(s.Inside, func(p Party) bool {
		if p.Expiry > s.ms {
			return false
		}
		if p.Delay > 0 {
			s.Closed = max(s.Closed, p.Expiry+p.Delay)
		}
		if !p.Confirmed {
			s.suspect(&p)
		}
		return true
	})
	s.Queue = slices.DeleteFunc(s.Queue, func(p Party) bool {
		if p.Expiry > s.ms {
			return false
		}
		if p.Called > 0 && p.Expiry == p.Called+p.Window && p.Notify != "" {
			s.suspect(&p)
		}
		return true
	})
	if len(s.Queue) == 0 {
		s.Head, s.When = "", 0
	}
	for name, m := range s.Marks {
		if m.Until <= s.ms {
			delete(s.Marks, name)
		}
	}
	s.Spent.purge(s.ms)
}

// suspect records that p did not confirm a hand-over or answer a call in time, unless its
// process has made a request since.
func (s *scene) suspect(p *Party) {
	if s.Heard(p.Notify) > p.Expiry-p.Window {
		return
	}
	before := p.Before
	if m, ok := s.Marks["!"+p.Notify]; ok && m.Until > s.ms {
		before = max(before, m.before())
	}
	s.mark("!"+p.Notify, s.ms+suspicion, strconv.FormatInt(before, 10))
}

// dead reports whether p is a ticket of a process that is taken to have died since.
func (s *scene) dead(p *Party) bool {
	m, ok := s.Marks["!"+p.Notify]
	return ok && p.Notify != "" && p.Arrival() <= m.before()
}

// reenters reports whether p's owner has the room exclusively.
func (s *scene) reenters(p *Party) bool {
	if !p.Reenter || p.Mode != driver.Exclusive || len(s.Inside) == 0 {
		return false
	}
	in := &s.Inside[0]
	return in.Mode == driver.Exclusive && in.Reenter && in.Owner == p.Owner
}

// taken reports whether a holder excludes every other party.
func (s *scene) taken() bool {
	return len(s.Inside) > 0 && s.Inside[0].Mode == driver.Exclusive && !s.Inside[0].Reenter
}

// fits reports whether the holders leave enough room for p.
func (s *scene) fits(p *Party) bool {
	if s.reenters(p) {
		return true
	}
	if s.ms < s.Closed {
		return false
	}
	if p.Mode == driver.Exclusive {
		return len(s.Inside) == 0
	}
	used := int64(p.Weight)
	for _, in := range s.Inside {
		if in.Mode == driver.Exclusive {
			return false
		}
		used += int64(in.Weight)
	}
	return s.Limit == 0 || used <= int64(s.Limit)
}

// oversized reports whether p can never fit, after the limit was lowered.
func (s *scene) oversized(p *Party) bool {
	return p.Mode == driver.Shared && s.Limit > 0 && p.Weight > s.Limit
}

// mustYield reports whether p has to wait behind a waiter.
func (s *scene) mustYield(p *Party) bool {
	if p.Policy == driver.Barging || s.reenters(p) {
		return false
	}
	return len(s.Queue) > 0 && s.Queue[0].Rank < p.Rank
}

func (s *scene) admits(p *Party) bool { return s.fits(p) && !s.mustYield(p) }

// rank returns the place of the next arrival.
func (s *scene) rank(p *Party) int64 {
	rank := s.Seq + 1
	switch {
	case p.Policy == driver.WritersFirst && p.Mode == driver.Shared,
		p.Policy == driver.ReadersFirst && p.Mode == driver.Exclusive,
		p.Policy == driver.FIFO, p.Policy == driver.Barging:
		rank += behind
	}
	return rank
}

// mint returns the token of p's entry.
func (s *scene) mint(p *Party) int64 {
	if s.reenters(p) {
		return s.Inside[0].Token
	}
	s.Token = max(s.Token+1, cmp.Or(s.Store.Next, s.now), p.MinToken+1)
	s.Store.Minted, s.Store.Last = s.Store.Minted+1, s.Token
	return s.Token
}

// raise makes the token of the holder p at least token, or exactly token if level is set.
// The exclusive leases of its owner share the token.
func (s *scene) raise(p *Party, token int64, level bool) {
	if token <= 0 || token > s.now+ahead || token <= p.Token && !level {
		return
	}
	s.Token, s.Store.Raised = max(s.Token, token), true
	if p.Mode == driver.Shared {
		p.Token = token
		return
	}
	for i := range s.Inside {
		s.Inside[i].Token = token
	}
}

// number gives p the lowest places that no holder has. There are enough: the numbers below the
// limit that holders have are not more than their weights.
func (s *scene) number(p *Party) {
	if p.Mode != driver.Shared || s.Limit == 0 || s.Limit > driver.MaxNumbered {
		return
	}
	var taken [driver.MaxNumbered]bool
	for _, in := range s.Inside {
		for _, n := range in.Places.Numbers() {
			if n < len(taken) { // as every number that a store has written
				taken[n] = true
			}
		}
	}
	var numbers []int
	for n := range s.Limit {
		if !taken[n] && len(numbers) < p.Weight {
			numbers = append(numbers, n)
		}
	}
	p.Places = driver.PlacesOf(numbers)
}

// enter grants p a lease until expiry.
func (s *scene) enter(p Party, expiry int64, confirmed bool) *Party {
	p.Token = s.mint(&p)
	p.Expiry, p.Confirmed = expiry, confirmed
	s.number(&p)
	s.Queue = remove(s.Queue, p.ID)
	s.Inside = append(s.Inside, p)
	return &s.Inside[len(s.Inside)-1]
}

// queue keeps a ticket for p until expiry.
func (s *scene) queue(p Party, expiry int64) {
	s.Seq++
	p.Expiry = expiry
	at, _ := slices.BinarySearchFunc(s.Queue, p.Rank, func(q Party, rank int64) int { return cmp.Compare(q.Rank, rank) })
	s.Queue = slices.Insert(s.Queue, at, p)
}

// refresh keeps p's ticket alive. Its process has answered, and is no longer suspect.
func (s *scene) refresh(p *Party, wait time.Duration, notify string) {
	p.Expiry = s.ms + wait.Milliseconds()
	p.Notify = notify
	delete(s.Marks, "!"+notify)
	if notify != "" {
		s.mark("@"+notify, s.ms+suspicion, "")
	}
}

// handOver grants the room to waiters from the head of the queue that fit and can be
// notified, and informs the new head when to ask. Its work is bounded: at the bound, the
// head is made to ask at once.
func (s *scene) handOver() {
	for entered := 0; entered < batch && !s.taken(); {
		s.dropHeads()
		if len(s.Queue) == 0 {
			break
		}
		head := s.Queue[0]
		if !s.fits(&head) || head.Notify == "" {
			break
		}
		if head.Policy == driver.Barging {
			// A hand-over would make each critical section as long as a wake-up.
			s.call(&s.Queue[0])
			break
		}
		head.Before = s.Seq
		s.enter(head, s.ms+head.Window, false)
		entered++
		s.wake(head, driver.Hint{
			Kind: driver.HintGranted, ID: head.ID, Token: s.Inside[len(s.Inside)-1].Token,
			Clock: micros(s.now), ConfirmWindow: millis(head.Window), Places: s.Inside[len(s.Inside)-1].Places,
		})
	}
	s.hintHead()
}

// dropHeads removes waiters at the head of the queue that will never enter.
func (s *scene) dropHeads() {
	n := slices.IndexFunc(s.Queue, func(p Party) bool {
		return !s.oversized(&p) && !s.dead(&p)
	})
	if n < 0 {
		n = len(s.Queue)
	}
	s.Queue = slices.Delete(s.Queue, 0, n)
}

// call gives a ticket one window to ask, unless it has less time left.
func (s *scene) call(p *Party) bool {
	end := s.ms + p.Window
	if end >= p.Expiry {
		return false
	}
	p.Expiry, p.Called, p.Before = end, s.ms, s.Seq
	return true
}

// pingHead calls the head of the queue if only the head blocks p, for which there is room:
// a dead head would do so until its ticket expires. A head that lives asks, and is not
// called again within its window. pingHead returns when p may know more, or 0 if that does
// not depend on the head alone.
func (s *scene) pingHead(p *Party) (next int64) {
	if !s.fits(p) || len(s.Queue) == 0 {
		return 0
	}
	head := &s.Queue[0]
	if head.ID == p.ID || head.Notify == "" {
		return 0
	}
	if s.ms >= head.Called+head.Window && s.call(head) {
		s.Head, s.When = head.ID, s.ms
		s.wake(*head, driver.Hint{Kind: driver.HintAsk, ID: head.ID})
	}
	next = head.Expiry - s.ms
	if left := head.Called + head.Window - s.ms; left > 0 {
		next = min(next, left)
	}
	return next
}

// hintHead informs the head of the queue when asking is useful, if that is new: it has just
// become the head, or the time is now earlier.
func (s *scene) hintHead() {
	if len(s.Queue) == 0 {
		s.Head, s.When = "", 0
		s.clearSuspects()
		return
	}
	head := s.Queue[0]
	next := int64(0)
	if !s.fits(&head) {
		next = s.next()
	}
	if head.ID == s.Head && s.ms+next >= s.When {
		return
	}
	s.Head, s.When = head.ID, s.ms+next
	s.wake(head, driver.Hint{Kind: driver.HintAsk, ID: head.ID, RetryAfter: millis(next)})
}

// clearSuspects forgets suspects. Suspicion concerns only the tickets in the queue, since a
// process that queues again is alive.
func (s *scene) clearSuspects() {
	for name := range s.Marks {
		if name[0] == '!' || name[0] == '@' {
			delete(s.Marks, name)
		}
	}
}

// next returns the time until the obstacle for the head may end.
func (s *scene) next() int64 {
	if s.ms < s.Closed {
		return s.Closed - s.ms
	}
	next := int64(0)
	for _, p := range s.Inside {
		if left := p.Expiry - s.ms; next == 0 || left < next {
			next = left
		}
	}
	return next
}

func (s *scene) wake(p Party, h driver.Hint) {
	if p.Notify != "" && p.ID != s.caller {
		s.wakes = append(s.wakes, Wake{Address: p.Notify, Hint: h})
	}
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
