package play

import "testing"

func TestChain_FindsAnUpdateThatWasLost(t *testing.T) {
	for name, c := range map[string]struct {
		links []link
		wrong bool
	}{
		"lost":       {[]link{{"a", "", "1", true}, {"a", "1", "2", true}, {"a", "1", "3", true}}, true},
		"reverted":   {[]link{{"a", "", "1", true}, {"a", "2", "3", true}}, true},
		"unknown":    {[]link{{"a", "", "1", false}, {"a", "1", "2", false}, {"a", "1", "3", true}}, false},
		"other keys": {[]link{{"a", "", "1", true}, {"b", "", "1", true}, {"a", "1", "", true}, {"b", "1", "", true}}, false},
	} {
		inner := new(testing.T)
		if judge(inner, c.links); inner.Failed() != c.wrong {
			t.Errorf("%s: found: %t", name, inner.Failed())
		}
	}
}
