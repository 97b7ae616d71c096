package redisurl

import (
	"strings"
	"testing"
)

func TestParse_SaysWhichPartOfTheBeginningIsMissing(t *testing.T) {
	for text, hint := range map[string]string{
		"redis":              "…: no scheme",
		"redis:user:secret@": "redis:…: // has to follow redis:",
		"rediss:/h":          "rediss:…: // has to follow rediss:",
		"h:6379":             "no scheme",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), hint) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %q", text, err, hint)
		}
	}
}
