package filedriver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
)

func TestClock_StepsOfTheWallClockChangeNothing(t *testing.T) { // L15
	dir, f := t.TempDir(), newFake()
	s := open(t, dir, f.option())
	grant(t, s, driver.Request{Key: "k", ID: "one", TTL: time.Minute})
	for _, step := range []time.Duration{10 * time.Minute, -20 * time.Minute} {
		f.wall.Add(step.Microseconds())
		f.advance(time.Second)
		other := open(t, dir, f.option()) // a process that starts after the step
		busy(t, s, "k")
		busy(t, other, "k")
	}
	f.advance(time.Minute)
	grant(t, s, driver.Request{Key: "k", ID: "two"})
}

func TestClock_LeasesOfAnEarlierBootAreOverAndTokensRise(t *testing.T) {
	dir, f := t.TempDir(), newFake()
	last := int64(0)
	for boot, wall := range []time.Duration{0, time.Hour, -50 * 365 * 24 * time.Hour, 0} { // the third lost its clock
		f.boot = "boot-" + string(rune('a'+boot))
		f.elapsed.Store(int64(time.Second))
		f.wall.Add(wall.Microseconds())
		s := open(t, dir, f.option())
		for _, key := range []string{"stays", "goes"} {
			reply := grant(t, s, driver.Request{Key: key, ID: "id", TTL: 24 * time.Hour})
			if reply.Token <= last {
				t.Errorf("boot %d: token %d after %d", boot, reply.Token, last)
			}
			last = max(last, reply.Token)
			f.advance(time.Millisecond)
		}
		release(t, s, "goes", "id")
		closeStore(t, s)
	}
}

func TestClock_HR_A9_ALeaseOfThisBootIsNotOverUnderAnotherNameOfIt(t *testing.T) {
	dir, f := t.TempDir(), newFake()
	s := open(t, dir, f.option())
	grant(t, s, driver.Request{Key: "k", ID: "acquired", TTL: time.Hour})
	closeStore(t, s) // as the command leasehold acquire does
	f.advance(time.Minute)
	f.wall.Add(time.Minute.Microseconds() + 1000)
	inside := newFake()
	inside.elapsed.Store(f.elapsed.Load())
	inside.wall.Store(f.wall.Load())
	inside.boot = "of a container"
	refused(t, dir, driver.ErrUnavailable, "boot_id", inside.option())
	s = open(t, dir, f.option())
	busy(t, s, "k")
	closeStore(t, s)
	f.reboot("boot-2")
	grant(t, open(t, dir, f.option()), driver.Request{Key: "k", ID: "other"})
}

func TestClock_TokensThatACallerRaisedAreFollowedByGreaterOnesOverABoot(t *testing.T) {
	dir, f := t.TempDir(), newFake()
	s := open(t, dir, f.option())
	ahead := f.wall.Load() + (20 * time.Hour).Microseconds()
	first := grant(t, s, driver.Request{Key: "k", ID: "one", MinToken: ahead}).Token
	release(t, s, "k", "one")
	second := grant(t, s, driver.Request{Key: "k", ID: "two"}).Token
	release(t, s, "k", "two")
	closeStore(t, s)
	if left := files(t, s.tree.path("rooms")); len(left) != 1 {
		t.Errorf("left %v; want the token remembered while it is ahead", left)
	}
	f.reboot("boot-2")
	s = open(t, dir, f.option())
	third := grant(t, s, driver.Request{Key: "k", ID: "three"}).Token
	if first <= ahead || second <= first || third <= second {
		t.Errorf("minimum %d, then tokens %d, %d, %d: they must rise", ahead, first, second, third)
	}
}

func TestClock_RunsPastWhatWasReserved(t *testing.T) {
	dir, f := t.TempDir(), newFake()
	s, other := open(t, dir, f.option()), open(t, dir, f.option())
	last := int64(0)
	for range 100 {
		f.advance(7 * time.Minute)
		for _, s := range []*Driver{s, other} {
			reply := grant(t, s, driver.Request{Key: "k", ID: "id"})
			release(t, s, "k", "id")
			f.advance(time.Microsecond)
			if reply.Token <= last {
				t.Fatalf("token %d after %d", reply.Token, last)
			}
			last = reply.Token
		}
	}
	e, err := s.clock.load()
	if err != nil || e.Reserved <= last {
		t.Errorf("reserved up to %d, %v; tokens reached %d", e.Reserved, err, last)
	}
}

func TestClock_AnotherMachineInTheDirectoryIsRefused(t *testing.T) {
	dir, here, there := t.TempDir(), newFake(), newFake()
	s := open(t, dir, here.option())
	there.boot = "elsewhere"
	there.advance(time.Hour)
	refused(t, dir, driver.ErrUnavailable, "another machine", there.option())
	grant(t, s, driver.Request{Key: "k", ID: "id"})
}

func TestClock_DamagedEpochIsReported(t *testing.T) {
	dir := t.TempDir()
	closeStore(t, open(t, dir))
	for _, text := range []string{"", "{", `{"leasehold":2}`} {
		noError(t, os.WriteFile(dir+"/epoch", []byte(text), 0o600))
		refused(t, dir, driver.ErrMismatch, dir)
	}
}

func TestClock_RemovedEpochIsWrittenAgain(t *testing.T) {
	dir, f := t.TempDir(), newFake()
	s := open(t, dir, f.option())
	noError(t, os.Remove(dir+"/epoch"))
	f.advance(time.Hour)
	grant(t, s, driver.Request{Key: "k", ID: "id"})
	other := open(t, dir, f.option())
	if s.clock.read() != other.clock.read() {
		t.Errorf("two clocks: %d and %d", s.clock.read(), other.clock.read())
	}
}

// A renewal and a release overwrite the record, and need no new token.
func TestClock_AFullDiskLosesNoLease(t *testing.T) {
	dir, f := t.TempDir(), newFake()
	s := open(t, dir, f.option())
	grant(t, s, driver.Request{Key: "k", ID: "one", TTL: time.Hour})
	noError(t, os.MkdirAll(filepath.Join(dir, "epoch.draft", "full"), 0o700)) // so that no epoch can be written
	f.advance(2 * time.Duration(margin) * time.Microsecond)
	renew(t, s, "k", "one")
	release(t, s, "k", "one")
	if _, err := s.Acquire(t.Context(), driver.Request{Key: "k", ID: "two", TTL: time.Hour}); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a token that is not reserved: %v", err)
	}
}

// A process that reserves tokens may be stopped before it unlocks the epoch.
func TestClock_AReservationOfAnotherHoldsUpNoRenewal(t *testing.T) {
	dir, f := t.TempDir(), newFake()
	s, other := open(t, dir, f.option()), open(t, dir, f.option())
	grant(t, s, driver.Request{Key: "k", ID: "one", TTL: time.Hour})
	f.advance(2 * time.Duration(margin) * time.Microsecond)
	grant(t, other, driver.Request{Key: "another", ID: "two"})
	lockEpoch(t, other)
	renew(t, s, "k", "one")
}

// lockEpoch locks the epoch as another process does, until the test ends.
func lockEpoch(t *testing.T, s *Driver) {
	t.Helper()
	lock := s.tree.newFlock(filepath.Join("locks", "epoch"))
	noError(t, lock.Lock()) // a reservation may not have unlocked it yet
	t.Cleanup(func() { _ = lock.Close() })
}

// A call that needs a new token holds the lock of its shard while it waits for a reservation.
func TestClock_AReservationOfAnotherHoldsUpNoRenewalOfAShardThatManyWant(t *testing.T) {
	live.Test(t)
	dir, f := t.TempDir(), newFake()
	s := open(t, dir, f.option(), WithTimeout(3*time.Second))
	grant(t, s, driver.Request{Key: "k", ID: "one", TTL: time.Hour})
	f.advance(2 * time.Duration(margin) * time.Microsecond)
	lockEpoch(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	asked := make(chan struct{}, 1)
	same := s.shardOf(fileName(s.config.prefix + "k"))
	for i, n := 0, 0; n < 8; i++ {
		key := fmt.Sprint("x", i)
		if s.shardOf(fileName(s.config.prefix+key)) != same {
			continue
		}
		n++
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Acquire(ctx, driver.Request{Key: key, ID: "a", TTL: time.Minute}); !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("a token that is not reserved: %v", err)
				}
				select {
				case asked <- struct{}{}:
				default:
				}
			}
		})
	}
	<-asked
	for range 3 {
		renew(t, s, "k", "one")
	}
}

// When half of the reserved tokens are used, the next grant starts another reservation.
func TestClock_TokensAreReservedBeforeTheyRunOut(t *testing.T) {
	dir, f := t.TempDir(), newFake()
	s := open(t, dir, f.option())
	grant(t, s, driver.Request{Key: "k", ID: "one", TTL: time.Hour})
	f.advance(time.Duration(margin) * time.Microsecond * 2 / 3)
	before := s.clock.reserved.Load()
	grant(t, s, driver.Request{Key: "another", ID: "two", TTL: time.Hour})
	eventually(t, "tokens are reserved", func() bool { return s.clock.reserved.Load() != before })
	lockEpoch(t, s)
	f.advance(time.Duration(margin) * time.Microsecond * 2 / 3)
	grant(t, s, driver.Request{Key: "third", ID: "three", TTL: time.Hour})
}

// A process that has reserved tokens far ahead drops them if the file has a lower value.
func TestClock_TokensRiseOverARebootAlthoughTheDirectoryWasEmptied(t *testing.T) {
	dir, f := t.TempDir(), newFake()
	a, b := open(t, dir, f.option()), open(t, dir, f.option())
	for _, s := range []*Driver{a, b} {
		s.sweepInterval.Store(math.MaxInt64) // no sweep makes files again
	}
	grant(t, a, driver.Request{Key: "raised", ID: "one", MinToken: f.wall.Load() + (20 * time.Hour).Microseconds()})
	entries, err := os.ReadDir(dir)
	noError(t, err)
	for _, e := range entries {
		removeAll(t, filepath.Join(dir, e.Name()))
	}
	grant(t, b, driver.Request{Key: "x", ID: "one"})
	f.advance(time.Hour)
	first := grant(t, a, driver.Request{Key: "k", ID: "one"}).Token
	closeStore(t, a)
	closeStore(t, b)
	wall := f.wall.Load()
	f.reboot("boot-2")
	f.wall.Store(wall - (50 * 365 * 24 * time.Hour).Microseconds())
	c := open(t, dir, f.option())
	if second := grant(t, c, driver.Request{Key: "k", ID: "two"}).Token; second <= first {
		t.Errorf("token %d after %d", second, first)
	}
}

// The wall clock was stepped since the directory was opened, as at the start of a machine.
// Then the directory is removed, and another process is the first to make it again.
func TestClock_OfADirectoryThatAnotherMadeAgainIsOneForAll(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		dir, f := filepath.Join(t.TempDir(), "dir"), newFake()
		s := open(t, dir, f.option())
		grant(t, s, driver.Request{Key: "before", ID: "one"})
		f.wall.Add(step.Microseconds())
		removeAll(t, dir)
		other := open(t, dir, f.option())
		grant(t, other, driver.Request{Key: "theirs", ID: "two"})
		if _, _, err := s.List(t.Context(), "", ""); err != nil { // List removes expired locks
			t.Error(err)
		}
		grant(t, s, driver.Request{Key: "ours", ID: "one"})
		busy(t, other, "ours")
		busy(t, s, "theirs")
	}
}

func TestClock_TooFarInTheFutureIsRefused(t *testing.T) {
	f := newFake()
	f.wall.Store(maxToken)
	refused(t, t.TempDir(), driver.ErrUnavailable, "", f.option())
}

func TestThisMachine_CountsAndIsOneForAllProcesses(t *testing.T) {
	one, err := thisMachine()
	noError(t, err)
	two, err := thisMachine()
	noError(t, err)
	if one.boot == "" || one.boot != two.boot {
		t.Errorf("boots %q and %q", one.boot, two.boot)
	}
	before := one.elapsed()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	if passed := two.elapsed() - before; passed < 19*time.Millisecond || passed > 10*time.Second {
		t.Errorf("20ms took %v", passed)
	}
}
