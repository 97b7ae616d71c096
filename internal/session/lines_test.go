package session

import (
	"slices"
	"testing"
)

func TestLines_TellWhoIsFirstAndWhoComesNext(t *testing.T) {
	var l lines
	a, b, c, other := new(Waiter), new(Waiter), new(Waiter), new(Waiter)
	pa, pb, pc, po := l.join("k", a), l.join("k", b), l.join("k", c), l.join("l", other)
	first := func(want ...bool) {
		t.Helper()
		if got := []bool{l.first("k", pa), l.first("k", pb), l.first("k", pc), l.first("l", po)}; !slices.Equal(got, want) {
			t.Errorf("first: %v, want %v", got, want)
		}
	}
	first(true, false, false, true)
	if next := l.leave("k", pb); next != nil {
		t.Error("one in the middle left, and somebody comes next")
	}
	first(true, false, false, true)
	if next := l.leave("k", pa); next != c {
		t.Error("the first left, and the next is somebody else")
	}
	first(false, false, true, true)
	if next := l.leave("k", pc); next != nil || len(l.byKey) != 1 {
		t.Errorf("the last left, %v comes next, %d lines are left", next, len(l.byKey))
	}
	first(false, false, false, true)
}
