//go:build linux || darwin

package cli_test

import (
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func TestDoctor_EndsWithOneForAServerThatMakesLocksUnsafe(t *testing.T) {
	live.Test(t)
	evicting := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	sound := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	other := redistest.StartBeside(t, sound, "--appendonly", "yes", "--appendfsync", "always")
	down := redistest.Start(t)
	down.Kill()
	database := postgrestest.Start(t, "synchronous_commit=on", "fsync=on")
	for name, row := range map[string]struct {
		urls []string
		code int
		says string
	}{
		"sound":         {[]string{sound.URL()}, 0, "nothing makes locks unsafe\n"},
		"eviction":      {[]string{evicting.URL()}, 1, "unsafe   eviction"},
		"a replica":     {[]string{replica.URL()}, 1, "unsafe   role"},
		"no replicas":   {[]string{sound.URL() + "?replicas=1"}, 1, "0 of 1 replicas"},
		"down":          {[]string{down.URL()}, 69, "connection refused"},
		"a pair":        {[]string{primary.URL(), replica.URL()}, 1, "copies of the same data"},
		"one of two":    {[]string{sound.URL(), down.URL()}, 1, "without a majority"},
		"two of three":  {[]string{sound.URL(), other.URL(), down.URL()}, 0, "it has no vote"},
		"one machine":   {[]string{sound.URL(), other.URL()}, 0, "on one machine"},
		"a quorum":      {[]string{"quorum+redis://" + primary.Addr() + "," + replica.Addr() + "," + sound.Addr()}, 1, "copies of the same data"},
		"no quorum":     {[]string{"quorum+redis://" + down.Addr() + ",127.0.0.1:1," + sound.Addr()}, 69, "1 of 3 nodes answer"},
		"bad in a list": {[]string{sound.URL(), "redis://h:x"}, 64, "65535"},
		"no table":      {[]string{database.URL()}, 1, `CREATE TABLE IF NOT EXISTS "leasehold"`},
		"a table":       {[]string{database.URL() + "&create=true&table=new"}, 0, "a waiter is woken"},
		"two tables":    {[]string{database.URL(), database.URL() + "&table=other"}, 1, "one and the same server"},
	} {
		if out, code := run(t, append([]string{"doctor"}, row.urls...)...); code != row.code || !strings.Contains(out, row.says) {
			t.Errorf("%s: code %d, want %d and %q:\n%s", name, code, row.code, row.says, out)
		}
	}
}
