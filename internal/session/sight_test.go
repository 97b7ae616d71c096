package session

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// TestSight_FollowsWhatTheStoreSays of the place, and of the lease before it, of which
// nothing is known once the place has changed.
func TestSight_FollowsWhatTheStoreSays(t *testing.T) {
	begin := time.Now()
	later := func(d time.Duration) time.Time { return begin.Add(d) }
	holder := []driver.Holder{{ID: "h", Remaining: 10 * time.Second}, {ID: "i"}}
	type seen struct {
		position  int
		id        string
		remaining time.Duration // 4 s after the beginning
	}
	for _, c := range []struct {
		name string
		do   func(s *sight)
		want seen
	}{
		{"nothing is known", func(*sight) {}, seen{}},
		{"a holder is told", func(s *sight) { s.answer(begin, &driver.Reply{Position: 3, Holders: holder}) }, seen{3, "h", 6 * time.Second}},
		{"a holder's time is over", func(s *sight) {
			s.answer(begin, &driver.Reply{Position: 3, Holders: []driver.Holder{{ID: "h", Remaining: time.Second}}})
		}, seen{3, "h", 0}},
		{"the same place", func(s *sight) {
			s.answer(begin, &driver.Reply{Position: 3, Holders: holder})
			s.answer(later(time.Second), &driver.Reply{Position: 3, RetryAfter: time.Minute})
		}, seen{3, "h", 6 * time.Second}},
		{"another place", func(s *sight) {
			s.answer(begin, &driver.Reply{Position: 3, Holders: holder})
			s.answer(later(time.Second), &driver.Reply{Position: 2, RetryAfter: time.Minute})
		}, seen{2, "", 0}},
		{"the first place, and when to ask", func(s *sight) {
			s.answer(begin, &driver.Reply{Position: 1, Holders: holder})
			s.answer(later(time.Second), &driver.Reply{Position: 1, RetryAfter: 20 * time.Second})
		}, seen{1, "h", 17 * time.Second}},
		{"the first place behind another library, and when to ask", func(s *sight) {
			s.answer(begin, &driver.Reply{Position: 1, Holders: []driver.Holder{{Remaining: 10 * time.Second, Foreign: true}}})
			s.answer(later(time.Second), &driver.Reply{Position: 1, RetryAfter: 500 * time.Millisecond})
			s.lead(later(time.Second), 500*time.Millisecond)
		}, seen{1, "", 6 * time.Second}},
		{"the first place, and nothing else", func(s *sight) {
			s.answer(begin, &driver.Reply{Position: 1, Holders: holder})
			s.answer(later(time.Second), &driver.Reply{Position: 1})
		}, seen{1, "h", 6 * time.Second}},
		{"the first place, and to ask at once", func(s *sight) {
			s.answer(begin, &driver.Reply{Position: 1, Holders: holder})
			s.answer(later(time.Second), &driver.Reply{Position: 1, RetryAfter: 1})
		}, seen{1, "h", 0}},
		{"the first place by a hint to ask at once", func(s *sight) {
			s.answer(begin, &driver.Reply{Position: 1, Holders: holder})
			s.lead(later(time.Second), 1)
		}, seen{1, "h", 0}},
		{"the first place by a hint", func(s *sight) {
			s.answer(begin, &driver.Reply{Position: 2, Holders: holder})
			s.lead(later(time.Second), 20*time.Second)
		}, seen{1, "", 17 * time.Second}},
		{"the first place by a hint that says no time", func(s *sight) {
			s.answer(begin, &driver.Reply{Position: 1, Holders: holder})
			s.lead(later(time.Second), 0)
		}, seen{1, "h", 6 * time.Second}},
	} {
		s := new(sight)
		c.do(s)
		h := s.now(later(4 * time.Second))
		if got := (seen{s.position, h.ID, h.Remaining}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
