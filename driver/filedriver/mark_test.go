package filedriver

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/marktest"
)

func TestGuard_TheMarkIsLostWithTheLocks(t *testing.T) {
	machine := newFake()
	dir := filepath.Join(t.TempDir(), "dir")
	s := open(t, dir, machine.option())
	forgotten := func(s *Driver, why string) {
		t.Helper()
		_, err := s.Acquire(t.Context(), driver.Request{Key: "k", ID: "a", TTL: time.Minute, Guard: true})
		if !errors.Is(err, driver.ErrAmnesia) {
			t.Fatalf("%s: %v", why, err)
		}
	}
	wantMark := func(s *Driver, left time.Duration, ok bool) {
		t.Helper()
		if got, gotOK, err := s.Marked(t.Context()); got.Quarantine != left || gotOK != ok || err != nil {
			t.Fatalf("marked: %+v, %v, %v; want %v, %v", got, gotOK, err, left, ok)
		}
	}
	mark := func(s *Driver, quarantine time.Duration) {
		t.Helper()
		noError(t, s.Mark(t.Context(), driver.Mark{Quarantine: quarantine}, ""))
	}
	serves := func(s *Driver) {
		t.Helper()
		grant(t, s, driver.Request{Key: "k", ID: "a", Guard: true})
		release(t, s, "k", "a")
	}

	wantMark(s, 0, false)
	forgotten(s, "without a mark")
	mark(s, time.Minute)
	forgotten(s, "in quarantine")
	mark(s, 0) // has no effect
	wantMark(s, time.Minute, true)
	machine.advance(time.Minute)
	serves(s)

	removeAll(t, dir)
	forgotten(s, "the directory is gone")
	wantMark(s, 0, false)
	mark(s, 0)
	serves(s)

	closeStore(t, s)
	machine.reboot("boot-2")
	again := open(t, dir, machine.option())
	forgotten(again, "the machine was restarted")
	wantMark(again, 0, false)
}

func TestMark_HR_A8_IsSetOnlyWhileTheDirectoryIsReserved(t *testing.T) {
	machine := newFake()
	dir := filepath.Join(t.TempDir(), "dir")
	marktest.Reservations(t, open(t, dir, machine.option()), machine.advance, func() { removeAll(t, dir) })
}
