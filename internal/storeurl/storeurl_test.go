package storeurl

import (
	"errors"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
)

func TestRedact_ShowsOnlyWhatItCanTellApart(t *testing.T) {
	for rawURL, want := range map[string]string{
		"redis://u:p@h:1/0?sentinel_password=p": "redis://***@h:1/0",
		"redis+cluster://a:1,b,[::1]:7":         "redis+cluster://a:1,b,[::1]:7",
		"redis://":                              "redis://",
		"redis://u:p@p@h":                       "redis://***@h",
		"https://token@h/path":                  "https://***@h/path",
		"unix:///run/redis.sock?db=1":           "unix:///run/redis.sock",
		"mongodb://u:p@h/x":                     "mongodb://***@h/x",
		"postgres://h/db?user=me%40corp":        "postgres://h/db",
		"postgres://%2Frun%2Fpg/db":             "postgres://%2Frun%2Fpg/db",
		"file:locks":                            "file:locks",
		"file:///var/a@b:c?mode=0770":           "file:///var/a@b:c",
		"memory:":                               "memory:",
		"quorum://?node=redis://u:p@a":          "quorum://",
		"quorum+redis://:p@a,b/1?prefix=x":      "quorum+redis://***@a,b/1",

		"":                               "…",
		"secret":                         "…",
		"u:p@h":                          "…",
		"host=h password=p":              "…",
		"redis:u:p@h":                    "redis:…",
		"quorum+redis:u:p@h":             "quorum+redis:…",
		"quorum://u:p@h?node=redis://a":  "quorum:…",
		"redis://u:p/p@h":                "redis:…",
		"redis://u:1/p@h":                "redis:…",
		"redis://u:1/secret":             "redis:…",
		"redis://u:1?p@h":                "redis:…",
		"redis://u:1#p@h":                "redis:…",
		"redis://u@h?prefix=x@y":         "redis:…",
		"redis://u:p":                    "redis:…",
		"redis://h%zz":                   "redis:…",
		"https://to?ken@h":               "https:…",
		"file://u:p@h/x":                 "file:…",
		"memory:p":                       "memory:…",
		"postgres://u:p?p@h/db":          "postgres:…",
		"postgres://u:1/p?sslmode=a&b@h": "postgres:…",
	} {
		if got := Redact(rawURL); got != want {
			t.Errorf("%s: %s, want %s", rawURL, got, want)
		}
	}
}

func TestInvalid_HasTheReasonOnlyIfItQuotesNoSecret(t *testing.T) {
	reason := errors.New("the reason")
	for rawURL, hint := range map[string]string{
		"redis://u:p@h?x=1":          "redis://***@h: the reason",
		"redis://u:p?p@h":            "percent-encode",
		"redis://h?password=a&b=c":   "percent-encode",
		"redis:u:p@h":                "// has to follow redis:",
		"u:p@h":                      "no scheme",
		"host=h password=p":          "no scheme",
		"file:///x?nonsense=1":       "the reason",
		"redis://h?password_file=/x": "the reason",
	} {
		err := Invalid(rawURL, reason)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v, want ErrInvalid that says %q", rawURL, err, hint)
		}
	}
	if text := Invalid("s3://b", check.Error("too short")).Error(); text != "store URL s3://b: too short: invalid" {
		t.Error(text)
	}
}
