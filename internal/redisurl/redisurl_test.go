package redisurl

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

func TestParse_ReadsEveryForm(t *testing.T) {
	for url, want := range map[string]Config{
		"redis://localhost":               {Addrs: []string{"localhost:6379"}},
		"redis://":                        {Addrs: []string{"localhost:6379"}},
		"redis://u:p%40@h:7/3":            {Addrs: []string{"h:7"}, Username: "u", Password: "p@", DB: 3},
		"redis://:p@[::1]:7?db=2":         {Addrs: []string{"[::1]:7"}, Password: "p", DB: 2},
		"redis://[::1]":                   {Addrs: []string{"[::1]:6379"}},
		"redis://h?prefix=&timeout=500ms": {Addrs: []string{"h:6379"}, Options: redisroom.Options{Prefix: "none", Timeout: 500 * time.Millisecond}},
		"unix:///run/redis.sock?db=1":     {Network: "unix", Addrs: []string{"/run/redis.sock"}, DB: 1},
		"redis://a,b:7?cluster=true":      {Kind: Cluster, Addrs: []string{"a:6379", "b:7"}},
		"redis+cluster://u:p@a,b":         {Kind: Cluster, Addrs: []string{"a:6379", "b:6379"}, Username: "u", Password: "p"},
		"redis+sentinel://a,b:7/1?master=m&sentinel_password=s": {
			Kind: Sentinel, Addrs: []string{"a:26379", "b:7"}, DB: 1, Master: "m", SentinelPassword: "s",
		},
	} {
		switch want.Prefix {
		case "":
			want.Prefix = "leasehold:"
		case "none":
			want.Prefix = ""
		}
		if want.Network == "" {
			want.Network = "tcp"
		}
		if want.Timeout == 0 {
			want.Timeout = 2 * time.Second
		}
		got, err := Parse(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if !slices.Equal(got.Addrs, want.Addrs) {
			t.Errorf("%s: addresses %q, want %q", url, got.Addrs, want.Addrs)
		}
		got.Addrs, want.Addrs = nil, nil
		if got.TLS != nil || !equal(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", url, got, want)
		}
	}
}

func equal(a, b Config) bool {
	return a.Kind == b.Kind && a.Network == b.Network && a.Master == b.Master && a.Username == b.Username &&
		a.Password == b.Password && a.SentinelUsername == b.SentinelUsername && a.SentinelPassword == b.SentinelPassword &&
		a.DB == b.DB && a.ClientName == b.ClientName && a.Prefix == b.Prefix && a.Timeout == b.Timeout
}

func TestParse_ReadsReplicas(t *testing.T) {
	for url, want := range map[string]redisroom.Acks{
		"redis://h?replicas=0":                                        {},
		"redis://h?replicas=2":                                        {Replicas: 2, Timeout: time.Second},
		"redis://h?replicas=1&timeout=500ms":                          {Replicas: 1, Timeout: 250 * time.Millisecond},
		"redis+sentinel://h?master=m&replicas=1&replica-timeout=50ms": {Replicas: 1, Timeout: 50 * time.Millisecond},
		"redis+cluster://h?replicas=1&replica_timeout=50ms":           {Replicas: 1, Timeout: 50 * time.Millisecond},
	} {
		c, err := Parse(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		var got redisroom.Acks
		if c.Acks != nil {
			got = *c.Acks
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", url, got, want)
		}
	}
}

func TestParse_UsesTLSWhenAsked(t *testing.T) {
	c, err := Parse("rediss+cluster://h?server_name=n&skip_verify=true")
	if err != nil || c.TLS == nil || c.TLS.ServerName != "n" || !c.TLS.InsecureSkipVerify {
		t.Errorf("%+v, %v", c.TLS, err)
	}
}

func TestParse_SaysWhatIsWrong(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for url, hint := range map[string]string{
		"":                             "scheme",
		"redis":                        "…: no scheme",
		"h:6379":                       "no scheme",
		"redis:user:secret@":           "redis:…: // has to follow redis:",
		"rediss:/h":                    "rediss:…: // has to follow rediss:",
		"http://h":                     "redis+cluster",
		"redis://h:0":                  "65535",
		"redis://h:x":                  "65535",
		"redis://a:b:c":                "v6",
		"redis://h/x":                  "database",
		"redis://h/-1":                 "database",
		"redis://a,b":                  "redis+cluster://",
		"redis://h?master=m":           "redis+sentinel://",
		"redis+sentinel://h":           "?master=",
		"redis+cluster://h/1":          "database 0",
		"redis://h?nonsense=1":         "nonsense",
		"redis://h?prefix=a&prefix=b":  "twice",
		"redis://h?timeout=5":          "500ms",
		"redis://h?replicas=-1":        "from 0",
		"redis://h?replicas=101":       "between 1 and 100",
		"redis://h?replica-timeout=1s": "goes with replicas",
		"redis://h?replicas=1&replica-timeout=2s":   "half of the timeout",
		"redis://h?replicas=1&replica-timeout=10us": "1ms",
		"redis://h?replicas=1&replicas=1":           "twice",
		"redis://h?client-name=a&client_name=b":     "twice",
		"redis://h?timeout=1ns":                     "10ms",
		"redis://h?prefix=a;replicas=3":             "name=value",
		"redis://h?replicas=3&prefix=50%":           "name=value",
		"redis://h?prefix=a#b:":                     "%23",
		"redis://h?prefix=a%01":                     "control",
		"redis://h?cluster=perhaps":                 "true or false",
		"redis://h?ca=x":                            "rediss://",
		"rediss://h?ca=" + missing:                  missing,
		"rediss://h?cert=" + missing:                "certificate",
		"unix://h/run/redis.sock":                   "unix:///",
		"unix://":                                   "unix:///",
		"redis+sentinel://h?master=m&cluster=true":  "redis://",
	} {
		_, err := Parse(url)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), hint) || strings.Count(err.Error(), ": invalid") != 1 {
			t.Errorf("%s: %v, want ErrInvalid with %q", url, err, hint)
		}
	}
}

func TestParse_NeverShowsSecrets(t *testing.T) {
	for _, url := range []string{
		"redis://user:secret@h:x", "http://user:secret@h", "redis://user:sec%zzret@h",
		"redis://user:sec/ret@h", "redis://user:ret?sec@h", "redis://user:ret#sec@h", "redis://:1234/ret@h", "redis://u:ret:s/x@h",
		"redis+cluster://u:s,ret:/x@h", "redis:user:secret@h", "secret@h", "redis+sentinel://h?sentinel_password=secret", "redis://h?nonsense=1&password=secret",
	} {
		if _, err := Parse(url); err == nil || strings.Contains(err.Error(), "ret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("redis://u:p@h:1/2?prefix=x&timeout=1s")
	f.Add("redis+sentinel://a,b:7/1?master=m")
	f.Add("unix:///run/redis.sock")
	f.Fuzz(func(t *testing.T, url string) {
		c, err := Parse(url)
		if err != nil {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%q: %v, want ErrInvalid", url, err)
			}
			return
		}
		if len(c.Addrs) == 0 || c.Timeout <= 0 || c.Kind == Single && len(c.Addrs) != 1 {
			t.Errorf("%q gives %+v", url, c)
		}
	})
}
