package filedriver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// spend takes a lock and releases it for good.
func spend(t *testing.T, s *Driver, key, id string, forbid time.Duration) {
	t.Helper()
	got, err := s.Acquire(t.Context(), driver.Request{Key: key, ID: id, TTL: time.Minute, SingleUseID: true})
	if err != nil || got.State != driver.Granted {
		t.Fatalf("acquire %s by %s: %+v, %v", key, id, got, err)
	}
	got, err = s.Release(t.Context(), driver.Ref{Key: key, ID: id, SingleUseID: true, RejectIDFor: forbid})
	if err != nil || got.State != driver.Released {
		t.Fatalf("release %s by %s: %+v, %v", key, id, got, err)
	}
}

// refuses reports whether the store rejects the id.
func refuses(t *testing.T, s *Driver, key, id string) bool {
	t.Helper()
	got, err := s.Acquire(t.Context(), driver.Request{Key: key, ID: id, TTL: time.Minute, SingleUseID: true})
	if err != nil {
		t.Fatalf("acquire %s by %s: %v", key, id, err)
	}
	if got.State == driver.Granted {
		release(t, s, key, id)
	}
	return got.State == driver.Gone && got.Replayed
}

func tables(t *testing.T, s *Driver) []string {
	return slices.DeleteFunc(files(t, s.tree.path("rooms")), func(name string) bool { return !strings.HasSuffix(name, idsSuffix) })
}

// TestIds_AreRememberedForTheirTime plays few and many ids with different times, in random
// order.
func TestIds_AreRememberedForTheirTime(t *testing.T) {
	if testing.Short() {
		skip.Racing(t, "it has one goroutine")
	}
	f := newFake()
	dir := t.TempDir()
	s := open(t, dir, f.option())
	until := make(map[string]int64)
	const lives = 20
	check := func(id string) {
		t.Helper()
		if got, want := refuses(t, s, "k", id), until[id] > f.elapsed.Load(); got != want {
			t.Fatalf("%s: refused %v, want %v", id, got, want)
		}
	}
	for i := range 3000 {
		id := fmt.Sprint("id-", i)
		forbid := time.Duration(1+rand.IntN(lives)) * time.Second
		spend(t, s, "k", id, forbid)
		until[id] = f.elapsed.Load() + int64(forbid)
		check(id)
		check(fmt.Sprint("id-", rand.IntN(i+1)))
		if rand.IntN(200) == 0 {
			f.advance(time.Duration(rand.IntN(lives)) * time.Second)
		}
		if rand.IntN(200) == 0 {
			closeStore(t, s)
			s = open(t, dir, f.option())
		}
	}
	for id := range until {
		check(id)
	}
	f.advance(lives * time.Second)
	for range 10 {
		s.sweep()
	}
	if left := files(t, s.tree.path("rooms")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Expired ids must not fill the table.
func TestIds_OfALockThatIsUsedAllTheTimeTakeWhatTheLivingOnesTake(t *testing.T) {
	if testing.Short() {
		skip.Racing(t, "it has one goroutine")
	}
	f := newFake()
	s := open(t, t.TempDir(), f.option())
	const alive, n = 500, 5_000
	for i := range n {
		spend(t, s, "k", fmt.Sprint("id-", i), alive*time.Second)
		f.advance(time.Second)
		if i == maxInRecord-1 && len(tables(t, s)) > 0 {
			t.Fatalf("%d ids have a file of their own", maxInRecord)
		}
	}
	names := tables(t, s)
	if len(names) != 1 {
		t.Fatalf("tables: %v", names)
	}
	info, err := os.Stat(recordPath(s, "k")[:len(recordPath(s, "k"))-len(suffix)] + idsSuffix)
	noError(t, err)
	if most := int64(alive * cellSize * 8); info.Size() > most {
		t.Errorf("%d ids take %d bytes, want %d at most", alive, info.Size(), most)
	}
}

// TestIds_CostTheSameHoweverManyThereAre measures pairs in files that a minute of
// releases fills.
func TestIds_CostTheSameHoweverManyThereAre(t *testing.T) {
	skip.Nightly(t, "it compares times")
	s := open(t, t.TempDir())
	made := 0
	pairs := func(n int) time.Duration {
		begin := time.Now()
		for range n {
			made++
			spend(t, s, "k", fmt.Sprint("id-", made), time.Hour)
		}
		return time.Since(begin) / time.Duration(n)
	}
	best := func() time.Duration { // a busy machine only adds
		least := time.Hour
		for range 10 {
			least = min(least, pairs(20))
		}
		return least
	}
	pairs(100)
	first := best()
	pairs(10_000)
	last := best()
	t.Logf("%v a pair with %d ids, %v with %d", first, 300, last, made)
	if last > 5*first { // about 40 times, if each pair read all ids
		t.Errorf("a pair takes %v with 10 000 ids, %v with 300", last, first)
	}
}

func TestIds_AFileThatIsNoTableIsLeftAlone(t *testing.T) {
	s := open(t, t.TempDir())
	spend(t, s, "k", "a", time.Minute)
	path := strings.TrimSuffix(recordPath(s, "k"), suffix) + idsSuffix
	for _, content := range []string{"", "something", strings.Repeat("x", 3*pageSize)} {
		noError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err := s.Acquire(t.Context(), driver.Request{Key: "k", ID: "b", TTL: time.Minute, SingleUseID: true})
		if !errors.Is(err, driver.ErrMismatch) || !strings.Contains(err.Error(), filepath.Base(path)) {
			t.Errorf("%.20q: %v", content, err)
		}
		s.sweep()
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("%.20q became %.20q, %v", content, got, err)
		}
	}
}
