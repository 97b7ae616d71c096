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
	guarded := driver.Request{Key: "k", ID: "a", TTL: time.Minute, Guard: true}
	forgotten := func(why string) {
		t.Helper()
		if _, err := s.Acquire(t.Context(), guarded); !errors.Is(err, driver.ErrAmnesia) {
			t.Fatalf("%s: %v", why, err)
		}
	}
	noError(t, s.Mark(t.Context(), driver.Mark{Quarantine: time.Minute}, ""))
	forgotten("in quarantine")
	machine.advance(time.Minute)
	grant(t, s, guarded)

	removeAll(t, dir)
	forgotten("the directory is gone")
	noError(t, s.Mark(t.Context(), driver.Mark{}, ""))
	grant(t, s, guarded)

	closeStore(t, s)
	machine.reboot("boot-2")
	s = open(t, dir, machine.option())
	forgotten("the machine was restarted")
}

func TestMark_HR_A8_IsSetOnlyWhileTheDirectoryIsReserved(t *testing.T) {
	machine := newFake()
	dir := filepath.Join(t.TempDir(), "dir")
	marktest.Reservations(t, open(t, dir, machine.option()), machine.advance, func() { removeAll(t, dir) })
}
