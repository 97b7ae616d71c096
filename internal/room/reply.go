package room

import (
	"maps"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

func (s *scene) reply(state driver.State) driver.Reply {
	return driver.Reply{State: state, Clock: micros(s.now)}
}

func (s *scene) broken(m Mark) driver.Reply {
	reply := s.reply(driver.Gone)
	reply.Broken, reply.Reason = true, m.Reason
	return reply
}

// spent answers for an id that was released.
func (s *scene) spent(released bool) driver.Reply {
	reply := s.reply(driver.Gone)
	reply.Replayed = released
	return reply
}

func (s *scene) granted(p *Party) driver.Reply {
	reply := s.reply(driver.Granted)
	reply.Token, reply.Holds = p.Token, 1
	if p.Mode == driver.Exclusive {
		reply.Holds = len(s.Inside)
	}
	reply.Places = p.Places
	return reply
}

func (s *scene) busy() driver.Reply {
	reply := s.reply(driver.Busy)
	reply.RetryAfter = millis(s.next())
	reply.Holders = s.longestHolder()
	return reply
}

// queued returns the reply to a queued request. The head gets the time to ask, so that it
// needs no hint, and the second waiter the time to check whether the called head has asked.
func (s *scene) queued(id string, withHolder bool, called int64) driver.Reply {
	reply := s.reply(driver.Queued)
	for i, p := range s.Queue {
		if p.ID == id {
			reply.Position = i + 1
		}
	}
	switch reply.Position {
	case 1:
		next := s.next()
		reply.RetryAfter = millis(next)
		s.Head, s.When = id, s.ms+next
	case 2:
		reply.RetryAfter = millis(called)
	}
	if withHolder {
		reply.Holders = s.longestHolder()
	}
	return reply
}

// longestHolder returns the holder that stays longest.
func (s *scene) longestHolder() []driver.Holder {
	var last *Party
	for i := range s.Inside {
		if last == nil || s.Inside[i].Expiry >= last.Expiry {
			last = &s.Inside[i]
		}
	}
	if last == nil {
		return nil
	}
	return []driver.Holder{last.holder(s.ms)}
}

func (p *Party) holder(ms int64) driver.Holder {
	return driver.Holder{
		ID: p.ID, Owner: p.Owner, Mode: p.Mode, Weight: p.Weight, Places: p.Places, Token: p.Token,
		Since: time.UnixMilli(p.Since), Remaining: millis(p.Expiry - ms), Labels: maps.Clone(p.Labels), Confirmed: p.Confirmed,
	}
}

func (p *Party) waiter(position int, ms int64) driver.Waiter {
	return driver.Waiter{
		ID: p.ID, Owner: p.Owner, Mode: p.Mode, Weight: p.Weight, Position: position,
		Since: time.UnixMilli(p.Since), Remaining: millis(p.Expiry - ms), Labels: maps.Clone(p.Labels),
	}
}
