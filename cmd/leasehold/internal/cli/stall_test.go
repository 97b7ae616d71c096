//go:build linux || darwin

package cli_test

import (
	"sync"
	"testing"
	"time"
)

const (
	// nap is how often stalls looks at the clock.
	nap = 10 * time.Millisecond
	// leastStall is the shortest stall that is noted, and leastStalls is how long all of them
	// take at least before they count: the margin by which a command is killed before the end
	// of its lease has room for less. A kill needs several processes to run one after the other,
	// of which each may have to wait.
	leastStall, leastStalls = 50 * time.Millisecond, 400 * time.Millisecond
)

// stalls notes when this machine stood still, or had others to run: a deadline that fell into
// such a time is kept by nobody. Its methods may be called by several goroutines.
type stalls struct {
	mu   sync.Mutex
	last time.Time // the last look
	all  []stall
}

type stall struct {
	end  time.Time
	took time.Duration
}

// watchStalls watches until the test ends.
func watchStalls(t *testing.T) *stalls {
	s := &stalls{last: time.Now()}
	go func() {
		for t.Context().Err() == nil {
			time.Sleep(nap)
			s.look()
		}
	}()
	return s
}

func (s *stalls) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if took := now.Sub(s.last) - nap; took >= leastStall {
		s.all = append(s.all, stall{now, took})
	}
	s.last = now
}

// total returns how long the machine stood still in all, in stalls that ended after since, or
// zero if that does not count.
func (s *stalls) total(since time.Time) (total time.Duration) {
	s.look() // the stall may have ended this moment
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.end.After(since) {
			total += one.took
		}
	}
	if total < leastStalls {
		return 0
	}
	return total
}

// longest returns the length of the longest stall that ended after since, or zero if that
// does not count.
func (s *stalls) longest(since time.Time) (longest time.Duration) {
	s.look()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.end.After(since) && one.took >= leastStalls {
			longest = max(longest, one.took)
		}
	}
	return longest
}
