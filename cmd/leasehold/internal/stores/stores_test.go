package stores_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// opens checks that URLs can be opened, and closes their stores.
func opens(t *testing.T, urls ...string) {
	t.Helper()
	for _, rawURL := range urls {
		d, err := stores.Open(rawURL)
		if err != nil {
			t.Errorf("%s: %v", rawURL, err)
			continue
		}
		d.Close()
	}
}

// refuses checks the errors of URLs: they contain a hint, and no secret.
func refuses(t *testing.T, hints map[string]string) {
	t.Helper()
	for rawURL, hint := range hints {
		_, err := stores.Open(rawURL)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), hint) || strings.Contains(err.Error(), "secret") ||
			strings.Count(err.Error(), ": invalid") > 1 {
			t.Errorf("%q: %v; want ErrInvalid with %q", rawURL, err, hint)
		}
	}
}

func TestOpen_FileAndMemory(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, rawURL := range []string{"file:locks", "file://" + t.TempDir() + "?prefix=a", "memory:"} {
		d, err := stores.Open(rawURL)
		if err != nil {
			t.Fatalf("%s: %v", rawURL, err)
		}
		take(t, d, "k")
		d.Close()
	}
	if _, err := os.Stat("locks"); err != nil {
		t.Error(err)
	}
}

func TestOpen_SaysWhatIsWrong(t *testing.T) {
	refuses(t, map[string]string{
		"":                               "file:///var/lib/leasehold",
		"/var/lib/leasehold":             "file:/var/lib/leasehold",
		"mongodb://u:secret@h/":          "file:///var/lib/leasehold",
		"redis://u:secret@h:x:y/":        "v6",
		"redis+sentinel://u:secret@a,b/": "master",
		"file:":                          "names no directory",
		"file://host/dir":                "three slashes",
		"file:///tmp/x?colour=1":         "unknown parameter",
		"postgres://u:secret@h:x/db":     "percent-encode",
		"memory:x":                       "no name",
	})
}

func TestOpen_EveryFormOfRedis(t *testing.T) {
	opens(t,
		"redis://u:p@h:6379/1?prefix=x:", "rediss://h", "unix:///run/redis.sock",
		"redis+sentinel://a:1,b,c/?master=m", "rediss+sentinel://a,b,c/?master=m",
		"redis+cluster://a:1,b,c", "rediss+cluster://a,b,c",
	)
}

func TestOpen_Postgres(t *testing.T) {
	server := postgrestest.Shared(t)
	for _, rawURL := range []string{
		server.URL() + "&create=true", strings.Replace(server.URL(), "postgres:", "postgresql:", 1),
		"quorum+" + server.URL() + "&create=true&table=alone&max-ttl=1m",
	} {
		d, err := stores.Open(rawURL)
		if err != nil {
			t.Fatalf("%s: %v", rawURL, err)
		}
		defer d.Close()
		take(t, d, rawURL[:8])
	}
}

func TestOpen_StoresWithLargeClients(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	opens(t,
		"mysql://u:p@h/app?create=true", "mariadb://u@h:3307/app?poll=50ms", "nats://u:p@a,b:4223/locks?create=true&replicas=3", "tls://a,b",
		"etcd://u:p@a,b:2380/team?timeout=3s", "etcds://a,b?prefix=",
		"s3://locks/team?region=eu-central-1", "s3://locks?endpoint=http://127.0.0.1:9000",
	)
	refuses(t, map[string]string{
		"mysql://u:secret@h":               "database",
		"nats://secret@h/x?create=perhaps": "create",
		"nats://u:secret@h:x/y":            "percent-encode",
		"etcd://u:secret@h?colour=1":       "unknown parameter",
		"etcd://secret@h":                  "go together",
		"s3://":                            "bucket",
		"s3://b":                           "3 to 63",
		"s3://locks?colour=1":              "unknown parameter",
	})
	if sql, err := stores.Schema("mysql://u:p@h/app?table=jobs"); err != nil || !strings.Contains(sql, "CREATE TABLE IF NOT EXISTS `jobs_message` (\n") {
		t.Errorf("the schema of MySQL is %q, %v", sql, err)
	}
}

func TestOpen_AService(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	opens(t,
		"http://h:8080", "https://h/path", "https://:t@h", "http://h?timeout=1s&token-file="+token, "https://h?skip-verify=true",
	)
	refuses(t, map[string]string{
		"http://":                       "http://host/path",
		"http://user:secret@h":          "no user",
		"http://:secret@h?token-file=x": "not both",
		"http://h?token-file=" + filepath.Join(dir, "missing"): "no such file",
		"http://h?ca=x":         "https://",
		"https://h?ca=" + token: "holds no certificate",
		"http://h?timeout=1ns":  "not between",
		"http://h?colour=1":     "unknown parameter",
	})
}

func TestAbsolute_MeansTheSameEverywhere(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	here, _ := os.Getwd()
	for rawURL, want := range map[string]string{
		"file:locks?prefix=a": "file://" + filepath.ToSlash(here) + "/locks?prefix=a",
		"file:///var/locks":   "file:///var/locks",
		"redis://h:1/0":       "redis://h:1/0",
		"redis://h?password_file=pw&prefix=a%3A&ca=/ca&cert=a%26b": "redis://h?password_file=" + here + "/pw&prefix=a%3A&ca=/ca&cert=" + here + "/a%26b",
		"http://h?token-file=../t":                                 "http://h?token-file=" + filepath.ToSlash(filepath.Dir(here)) + "/t",
		"postgres://h/db?passfile=p&user=ca":                       "postgres://h/db?passfile=" + here + "/p&user=ca",
		"postgres://h/db?sslrootcert=system":                       "postgres://h/db?sslrootcert=system",
		"redis://h?password-file=%zz":                              "redis://h?password-file=%zz",
	} {
		if got, err := stores.Absolute(rawURL); got != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", rawURL, got, err, want)
		}
	}
}

func TestDefault_LiesInTheStateDirectory(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	if got, err := stores.Default(); got != "file:///state/leasehold" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	t.Setenv("XDG_STATE_HOME", "not/absolute")
	t.Setenv("HOME", "/home/me")
	if got, err := stores.Default(); !strings.HasPrefix(got, "file:///home/me/") || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}
