package filedriver

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

func TestSweep_ClearsWhatDeadHoldersLeft(t *testing.T) { // P9
	dir, f := t.TempDir(), newFake()
	s := open(t, dir, f.option())
	grant(t, s, driver.Request{Key: "stays", ID: "id", TTL: time.Hour})
	for i := range 200 {
		grant(t, s, driver.Request{Key: fmt.Sprint("dead/", i), ID: "id", TTL: time.Second})
	}
	f.advance(2 * time.Second)
	eventually(t, "ordinary calls clear the directory", func() bool {
		for range minSweepInterval {
			grant(t, s, driver.Request{Key: "stays", ID: "id"})
		}
		return len(files(t, s.tree.path("rooms"))) == 1
	})
}

func TestSweep_ClearsEarlierBoots(t *testing.T) {
	dir, f := t.TempDir(), newFake()
	s := open(t, dir, f.option())
	for i := range sweepFiles + 20 {
		grant(t, s, driver.Request{Key: fmt.Sprint("earlier/", i), ID: "id", TTL: time.Hour})
	}
	closeStore(t, s)
	f.reboot("boot-2")
	s = open(t, dir, f.option())
	for range 5 {
		s.sweep()
	}
	if left, _ := filepath.Glob(s.tree.path("rooms", "*")); len(left) > 1 || len(files(t, s.tree.path("rooms"))) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestIdle_R3_NamesUsedOnceLeaveNoFiles(t *testing.T) {
	names := 5_000
	if testing.Short() {
		names = 600
	}
	s := open(t, t.TempDir())
	for i := range names {
		key := fmt.Sprint("once/", i)
		grant(t, s, driver.Request{Key: key, ID: "id"})
		release(t, s, key, "id")
		if i%300 == 299 {
			if left := len(files(t, s.tree.path("rooms"))); left > 2*maxIdleFiles+1 {
				t.Fatalf("%d files after %d names", left, i+1) // twice: some are about to be removed
			}
		}
	}
	eventually(t, "the last files go by themselves", func() bool { return len(files(t, s.tree.path("rooms"))) == 0 })
}

func TestIdle_FileGoesAlthoughItsShardWasTaken(t *testing.T) {
	s := open(t, t.TempDir())
	grant(t, s, driver.Request{Key: "k", ID: "id"})
	sh := s.shardOf(fileName("k"))
	release(t, s, "k", "id")
	noError(t, sh.lock.lock(t.Context(), time.Second))
	// The first sweep of a new store finds the shard locked, too.
	s.removeIdleFiles()
	sh.lock.unlock()
	eventually(t, "the sweep removes the file", func() bool { return len(files(t, s.tree.path("rooms"))) == 0 })
}

func TestIdle_CloseRemovesWhatLingers(t *testing.T) {
	s := open(t, t.TempDir())
	// The first sweep of a new store may remove the file before.
	eventually(t, "a file lingers for the next acquisition", func() bool {
		grant(t, s, driver.Request{Key: "k", ID: "id"})
		release(t, s, "k", "id")
		return len(files(t, s.tree.path("rooms"))) == 1
	})
	closeStore(t, s)
	if left := files(t, s.tree.path("rooms")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestList_ReturnsEveryKeyThatLivesThroughItOnPages(t *testing.T) {
	s := open(t, t.TempDir())
	var want []string
	few := s.shards[:24] // so that pages end within shards
	for i := 0; len(want) < 600; i++ {
		key := fmt.Sprint("list/", i)
		if slices.Contains(few, s.shardOf(fileName(key))) {
			grant(t, s, driver.Request{Key: key, ID: "id"})
			want = append(want, key)
		}
	}
	grant(t, s, driver.Request{Key: "other", ID: "id"})
	var got []string
	cursor, pages := "", 0
	for {
		keys, next, err := s.List(t.Context(), "list/", cursor)
		noError(t, err)
		got = append(got, keys...)
		churn := fmt.Sprint("list/churn", pages)
		grant(t, s, driver.Request{Key: churn, ID: "id"})
		release(t, s, churn, "id")
		pages++
		if cursor = next; next == "" {
			break
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
	if pages != 3 {
		t.Errorf("%d pages of %d keys, want 3", pages, len(want))
	}
	for _, cursor := range []string{"x", "-1/a", "64/a", "1"} {
		if _, _, err := s.List(t.Context(), "", cursor); err == nil {
			t.Errorf("cursor %q was taken", cursor)
		}
	}
}
