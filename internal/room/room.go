package room

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Acquire asks for a lease. now is the store's clock in µs since the Unix epoch. An
// error leaves the record as it was, except for expired entries.
func Acquire(r *Record, req driver.Request, now int64) (driver.Reply, []Wake, error) {
	s := open(r, now, req.ID)
	if err := CheckPlaces(req); err != nil {
		return driver.Reply{}, nil, err
	}
	if req.SingleUseID {
		if released, spent := s.Spent.released(req.ID, s.ms); spent {
			return s.spent(released), nil, nil
		}
	}
	if s.marked("+" + req.ID) {
		s.handOver()
		return s.reply(driver.Gone), s.wakes, nil
	}
	if req.Resize {
		return s.resize(req)
	}
	if m, ok := s.Marks["~"+req.ID]; ok {
		s.handOver()
		return s.broken(m), s.wakes, nil
	}
	if p := s.inside(req.ID); p != nil {
		return s.again(p, req)
	}
	if req.Downgrade {
		s.handOver()
		return s.reply(driver.Gone), s.wakes, nil
	}
	if t := s.ticket(req.ID); t != nil {
		s.refresh(t, max(req.TicketTTL, millis(t.Window)), req.HintAddress)
		t.Visit = req.Visit
		return s.ask(req.ID, req.TTL, true), s.wakes, nil
	}
	if err := cmp.Or(s.check(req), s.waitsForItself(req)); err != nil {
		return driver.Reply{}, nil, err
	}
	s.handOver()
	p := newParty(req)
	p.Rank = s.rank(&p)
	s.agree(req)
	switch {
	case s.admits(&p):
		return s.granted(s.enter(p, s.ms+req.TTL.Milliseconds(), true)), s.wakes, nil
	case req.TicketTTL <= 0:
		s.pingHead(&p)
		return s.busy(), s.wakes, nil
	}
	s.queue(p, s.ms+req.TicketTTL.Milliseconds())
	delete(s.Marks, "!"+req.HintAddress)
	s.hintHead()
	return s.queued(req.ID, true, s.pingHead(&p)), s.wakes, nil
}

// Renew prolongs a lease, confirms a grant, or keeps a ticket alive.
func Renew(r *Record, ref driver.Ref, now int64) (driver.Reply, []Wake) {
	s := open(r, now, ref.ID)
	if p := s.inside(ref.ID); p != nil {
		if ref.Visit != "" {
			p.Visit = common(p.Visit, ref.Visit)
		}
		s.raise(p, ref.Token, ref.Level)
		return s.confirm(p, ref.TTL), nil
	}
	if t := s.ticket(ref.ID); t != nil {
		t.Visit = cmp.Or(ref.Visit, t.Visit)
		s.refresh(t, ref.TicketTTL, ref.HintAddress)
		return s.ask(ref.ID, ref.TTL, false), s.wakes
	}
	m, broken := s.Marks["~"+ref.ID]
	s.handOver()
	if broken {
		return s.broken(m), s.wakes
	}
	return s.reply(driver.Gone), s.wakes
}

// Release ends a lease or a ticket.
func Release(r *Record, ref driver.Ref, now int64) (driver.Reply, []Wake) {
	s := open(r, now, ref.ID)
	if p := find(append(slices.Clip(s.Inside), s.Queue...), ref.ID); p != nil && ref.Visit != "" && !below(p.Visit, ref.Visit) {
		s.caller = "" // this visit gets no answer about it, so the requester of this id gets a hint
		s.handOver()
		return s.reply(driver.Busy), s.wakes
	}
	reply := s.leave(ref.ID)
	if reply.State == driver.Released && ref.KeepClosed > 0 {
		s.Closed = max(s.Closed, s.ms+ref.KeepClosed.Milliseconds())
	}
	if ref.RejectIDFor > 0 {
		s.forbid(ref, &reply)
	}
	s.handOver()
	return reply, s.wakes
}

// Break forcibly ends the lease or ticket id of the room of key, and notifies all
// subscriptions: the record lacks the address of a holder that took a free room.
func Break(r *Record, key, id, reason string, now int64) (driver.Reply, []Wake) {
	s := open(r, now, "")
	gone := find(append(slices.Clip(s.Inside), s.Queue...), id)
	if gone == nil {
		s.handOver()
		return s.reply(driver.Gone), s.wakes
	}
	p := *gone
	reply := s.leave(id)
	if reply.State == driver.Released && p.Delay > 0 {
		s.Closed = max(s.Closed, s.ms+p.Delay)
	}
	s.mark("~"+id, max(p.Expiry, s.ms+suspicion), reason)
	s.wakes = append(s.wakes, Wake{Address: Everybody, Hint: driver.Hint{Kind: driver.HintBroken, Key: key, ID: id, Reason: reason}})
	s.handOver()
	return reply, s.wakes
}

// Look returns the picture of the room without changing the record.
func Look(r *Record, key string, now int64) driver.Snapshot {
	snap := Glance(r, key, now)
	ms := now / 1000
	for _, p := range r.Queue {
		if p.Expiry <= ms {
			continue
		}
		if p.Mode == driver.Shared {
			snap.Limit = r.Limit
		}
		snap.Waiters = append(snap.Waiters, p.waiter(len(snap.Waiters)+1, ms))
	}
	return snap
}

// Glance is Look without the waiters.
func Glance(r *Record, key string, now int64) driver.Snapshot {
	ms := now / 1000
	snap := driver.Snapshot{Key: key, Token: r.Token}
	closed := r.Closed
	for _, p := range r.Inside {
		if p.Expiry > ms {
			snap.Holders = append(snap.Holders, p.holder(ms))
			if p.Mode == driver.Shared {
				snap.Limit = r.Limit
			}
		} else if p.Delay > 0 {
			closed = max(closed, p.Expiry+p.Delay)
		}
	}
	if closed > ms && len(snap.Holders) == 0 {
		snap.Closed = millis(closed - ms)
	}
	return snap
}

// again answers a request of a holder.
func (s *scene) again(p *Party, req driver.Request) (driver.Reply, []Wake, error) {
	downgrade := p.Mode == driver.Exclusive && req.Mode == driver.Shared
	if downgrade {
		if err := s.checkDowngrade(req); err != nil {
			return driver.Reply{}, nil, err
		}
		p.Mode, p.Weight = driver.Shared, max(req.Weight, 1)
		s.agree(req)
		s.number(p)
	}
	again := p.Confirmed
	p.Notify, p.Visit = req.HintAddress, common(p.Visit, req.Visit)
	reply := s.confirm(p, req.TTL)
	reply.Replayed = again
	if downgrade {
		s.handOver()
	}
	return reply, s.wakes, nil
}

// ask asks for the room for a live ticket: waiters before it that can be handed the
// room get it first.
func (s *scene) ask(id string, ttl time.Duration, withHolder bool) driver.Reply {
	s.handOver()
	if p := s.inside(id); p != nil {
		return s.confirm(p, ttl)
	}
	t := s.ticket(id)
	if t == nil {
		return s.reply(driver.Gone)
	}
	if s.admits(t) {
		p := s.enter(*t, s.ms+ttl.Milliseconds(), true)
		reply := s.granted(p)
		s.handOver()
		return reply
	}
	return s.queued(id, withHolder, s.pingHead(t))
}

// CheckPlaces refuses a limit or a weight out of bounds.
func CheckPlaces(req driver.Request) error {
	for _, n := range []int{req.Limit, req.Weight} {
		if n < 0 || n > driver.MaxPlaces {
			return fmt.Errorf("limit %d, weight %d: want 0 to %d: %w", req.Limit, req.Weight, driver.MaxPlaces, driver.ErrInvalid)
		}
	}
	return nil
}

// check refuses a request that contradicts the holders and waiters of the room.
func (s *scene) check(req driver.Request) error {
	if req.Guard && s.Token == 0 && !s.Store.Marked {
		return driver.ErrAmnesia
	}
	if req.MinToken > s.now+ahead {
		return fmt.Errorf("minimum token %d is more than 24 h ahead of the store's clock (%d): %w", req.MinToken, s.now, driver.ErrInvalid)
	}
	if req.Mode == driver.Shared && s.sharers() && s.Limit != req.Limit {
		return fmt.Errorf("limit %d, but the limit in force is %d: %w", req.Limit, s.Limit, driver.ErrMismatch)
	}
	if req.Mode == driver.Shared && req.Limit > 0 && req.Weight > req.Limit {
		return fmt.Errorf("weight %d is above the limit %d: %w", req.Weight, req.Limit, driver.ErrInvalid)
	}
	return nil
}

// waitsForItself refuses a request that would wait for its own owner, which holds the room in the
// other mode.
func (s *scene) waitsForItself(req driver.Request) error {
	own := func(p Party) bool { return p.Reenter && p.Owner == req.Owner && p.Mode != req.Mode }
	if req.Reenter && slices.ContainsFunc(s.Inside, own) {
		return fmt.Errorf("owner %q is inside exclusively and asks to share, or the other way round: %w", req.Owner, driver.ErrMismatch)
	}
	return nil
}

// checkDowngrade refuses to make a lease shared that its owner holds several times.
func (s *scene) checkDowngrade(req driver.Request) error {
	if n := len(s.Inside); n > 1 {
		return fmt.Errorf("held %d times by its owner, it cannot become shared: %w", n, driver.ErrMismatch)
	}
	return s.check(req)
}

// resize changes the limit in force. Waiters that ask for more than it are dropped when
// their turn comes.
func (s *scene) resize(req driver.Request) (driver.Reply, []Wake, error) {
	if !s.sharers() {
		s.handOver()
		return s.reply(driver.Gone), s.wakes, nil
	}
	if s.Limit == 0 || req.Limit == 0 {
		return driver.Reply{}, nil, fmt.Errorf("limit %d, but the limit in force is %d (0 is none): %w", req.Limit, s.Limit, driver.ErrMismatch)
	}
	s.Limit = req.Limit
	s.handOver()
	return s.reply(driver.Resized), s.wakes, nil
}

// agree puts the limit of the first sharer in force.
func (s *scene) agree(req driver.Request) {
	if req.Mode == driver.Shared {
		s.Limit = req.Limit
	}
}

// forbid rejects an id from now on, also if its request has not arrived yet.
func (s *scene) forbid(ref driver.Ref, reply *driver.Reply) {
	until := s.ms + ref.RejectIDFor.Milliseconds()
	if !ref.SingleUseID {
		s.mark("+"+ref.ID, until, "")
		return
	}
	released, _ := s.Spent.released(ref.ID, s.ms)
	if reply.State == driver.Gone {
		reply.Replayed = released
	} else {
		released = true
	}
	s.Spent.remember(ref.ID, until, released)
}

func (s *scene) leave(id string) driver.Reply {
	if s.inside(id) != nil {
		s.Inside = remove(s.Inside, id)
		return s.reply(driver.Released)
	}
	if s.ticket(id) != nil {
		s.Queue = remove(s.Queue, id)
		return s.reply(driver.Left)
	}
	if m, ok := s.Marks["~"+id]; ok {
		return s.broken(m)
	}
	return s.reply(driver.Gone)
}

func (s *scene) confirm(p *Party, ttl time.Duration) driver.Reply {
	// Never shorter: a renewal that was delayed on its way must not undo a
	// longer one that overtook it.
	p.Expiry, p.Confirmed = max(p.Expiry, s.ms+ttl.Milliseconds()), true
	reply := s.granted(p)
	reply.Wanted = len(s.Queue) > 0
	return reply
}
