package locktest_test

import (
	"fmt"
	"testing"
)

// seen is a party that held a lock from one time to another.
type seen struct {
	owner         string
	exclusive     bool
	weight, limit int
	token         int64
	first, last   int64
}

func judge(parties ...seen) []string {
	var w Witness
	for _, p := range parties {
		for _, at := range []int64{p.first, p.last} {
			w.See(Sighting{Key: "k", Owner: p.owner, Exclusive: p.exclusive, Weight: p.weight, Limit: p.limit, Token: p.token, At: at})
		}
	}
	return w.Judge()
}

func alone(owner string, token, first, last int64) seen {
	return seen{owner, true, 1, 0, token, first, last}
}
func reads(owner string, token, first, last int64) seen {
	return seen{owner, false, 1, 0, token, first, last}
}

func takes(owner string, weight int, token, first, last int64) seen {
	return seen{owner, false, weight, 3, token, first, last}
}

// TestWitness_FindsSeededBugs keeps the judge of the crowds and the soak honest.
func TestWitness_FindsSeededBugs(t *testing.T) {
	for name, bad := range map[string][]seen{
		"two holders":                      {alone("a", 1, 0, 11), alone("b", 2, 10, 20)},
		"a holder within another's time":   {alone("a", 1, 0, 30), alone("b", 2, 10, 20)},
		"a reader beside a writer":         {alone("a", 1, 0, 11), reads("b", 2, 10, 20)},
		"a writer beside the first of two": {reads("a", 1, 0, 30), reads("b", 2, 5, 6), alone("c", 3, 10, 20)},
		"a place beside a mutex":           {takes("a", 1, 1, 0, 11), alone("b", 2, 10, 20)},
		"four places of three":             {takes("a", 2, 1, 0, 30), takes("b", 1, 2, 5, 30), takes("c", 1, 3, 10, 20)},
		"too many after one has left":      {takes("a", 2, 1, 0, 9), takes("b", 2, 2, 9, 30), takes("c", 2, 3, 10, 20)},
		"a token that falls":               {alone("a", 2, 0, 5), alone("b", 1, 10, 20)},
		"a token given twice":              {alone("a", 2, 0, 5), alone("b", 2, 10, 20)},
		"a reader's token that falls":      {alone("a", 2, 0, 5), reads("b", 1, 10, 20)},
		"a writer's below a reader's":      {reads("a", 5, 0, 5), reads("b", 4, 0, 5), alone("c", 4, 10, 20)},
		"one owner, two grants":            {alone("a", 1, 0, 11), alone("a", 2, 10, 20)},
	} {
		if len(judge(bad...)) == 0 {
			t.Errorf("accepts %s", name)
		}
	}
	for name, good := range map[string][]seen{
		"one after the other":            {alone("a", 1, 0, 10), alone("b", 2, 10, 20), reads("c", 3, 20, 30)},
		"readers in any order":           {reads("a", 2, 0, 10), reads("b", 1, 5, 20), reads("c", 3, 6, 7)},
		"re-entry":                       {alone("a", 1, 0, 10), alone("a", 1, 5, 8), alone("b", 2, 10, 20)},
		"downgrade":                      {alone("a", 1, 0, 10), reads("a", 1, 10, 20), reads("b", 2, 11, 20), alone("c", 3, 20, 30)},
		"three places of three":          {takes("a", 2, 1, 0, 30), takes("b", 1, 2, 5, 30)},
		"places that are left and taken": {takes("a", 3, 1, 0, 10), takes("b", 2, 2, 10, 30), takes("c", 1, 3, 11, 20)},
	} {
		if wrong := judge(good...); len(wrong) > 0 {
			t.Errorf("refuses %s: %q", name, wrong)
		}
	}
}

func TestSighting_IsReadAsItWasWritten(t *testing.T) {
	s := Sighting{Key: "a/b", Owner: "p-1.2", Exclusive: true, Weight: 2, Limit: 5, Token: 1 << 52, At: 1 << 60}
	if got, err := ParseSighting(fmt.Sprint(s)); got != s || err != nil {
		t.Errorf("%+v became %+v, %v", s, got, err)
	}
	for _, cut := range []string{"", "true", "true a/b p-1.2 2 5 1"} {
		if got, err := ParseSighting(cut); err == nil {
			t.Errorf("%q was read as %+v", cut, got)
		}
	}
}
