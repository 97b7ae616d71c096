package proc

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestNotices_PausesGrow(t *testing.T) {
	var n notices
	var told []time.Duration
	for now := time.Duration(1); now < time.Hour; now += time.Second {
		if n.due(int64(now)) {
			told = append(told, now.Truncate(time.Second))
		}
	}
	const s = time.Second
	want := []time.Duration{0, 5 * s, 15 * s, 35 * s, 75 * s, 155 * s, 315 * s, 635 * s, 1235 * s, 1835 * s, 2435 * s, 3035 * s}
	if !slices.Equal(told, want) {
		t.Errorf("notices after %v, want %v", told, want)
	}
}

func TestPlan_TellsEachStepOnceAndInTime(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*plan)
		term int64 // when TERM is due, 0 for never
		kill int64
		late bool
	}{
		{"nothing asked", func(*plan) {}, 0, 0, false},
		{"deadline", func(p *plan) { p.setDeadline(100) }, 90, 100, true},
		{"deadline pushed", func(p *plan) { p.setDeadline(50); p.setDeadline(100) }, 90, 100, true},
		{"deadline lifted", func(p *plan) { p.setDeadline(50); p.setDeadline(0) }, 0, 0, false},
		{"deadline nearer than its grace", func(p *plan) { p.setDeadline(5) }, 1, 5, true},
		{"stop", func(p *plan) { p.end(20, 60) }, 20, 60, false},
		{"stop twice, the second longer", func(p *plan) { p.end(20, 60); p.end(30, 90) }, 20, 60, false},
		{"stop twice, the second shorter", func(p *plan) { p.end(20, 60); p.end(30, 40) }, 20, 40, false},
		{"stop without grace", func(p *plan) { p.end(20, 20) }, 0, 20, false},
		{"stop with a grace without end", func(p *plan) { p.end(20, later(20, math.MaxInt64)) }, 20, math.MaxInt64 / 2, false},
		{"deadline within the grace of a stop", func(p *plan) { p.end(20, 60); p.setDeadline(40) }, 20, 40, true},
		{"deadline pushed after its TERM", func(p *plan) { p.setDeadline(100); p.step(90); p.setDeadline(1000) }, 0, 100, true},
		{"deadline pushed during a stop", func(p *plan) {
			p.setDeadline(100)
			p.end(20, 500)
			p.step(20)
			p.step(95)
			p.setDeadline(1000)
		}, 0, 500, false},
		{"stop after the deadline", func(p *plan) { p.end(120, 160); p.setDeadline(100) }, 90, 100, true},
	} {
		p := plan{grace: 10}
		c.set(&p)
		var term, kill int64
		for now := p.next(); now != 0; now = p.next() {
			switch p.step(now) {
			case stepTerm:
				term = now
			case stepKill:
				kill = now
			}
		}
		if term != c.term || kill != c.kill || p.late != c.late {
			t.Errorf("%s: TERM at %d, KILL at %d, late %v; want %d, %d, %v", c.name, term, kill, p.late, c.term, c.kill, c.late)
		}
	}
}
