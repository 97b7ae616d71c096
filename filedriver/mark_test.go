package filedriver

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

func TestGuard_TheMarkIsLostWithTheLocks(t *testing.T) {
	machine := newFake()
	dir := filepath.Join(t.TempDir(), "dir")
	s := open(t, dir, machine.option())
	refused := func(s *Store, why string) {
		t.Helper()
		_, err := s.Acquire(t.Context(), driver.Request{Key: "k", ID: "a", TTL: time.Minute, Guard: true})
		if !errors.Is(err, driver.ErrAmnesia) {
			t.Fatalf("%s: %v", why, err)
		}
	}
	wantMark := func(s *Store, left time.Duration, ok bool) {
		t.Helper()
		if gotLeft, gotOK, err := s.Marked(t.Context()); gotLeft != left || gotOK != ok || err != nil {
			t.Fatalf("marked: %v, %v, %v; want %v, %v", gotLeft, gotOK, err, left, ok)
		}
	}
	mark := func(s *Store, quarantine time.Duration) {
		t.Helper()
		if err := s.Mark(t.Context(), quarantine); err != nil {
			t.Fatal(err)
		}
	}
	serves := func(s *Store) {
		t.Helper()
		grant(t, s, driver.Request{Key: "k", ID: "a", Guard: true})
		release(t, s, "k", "a")
	}

	wantMark(s, 0, false)
	refused(s, "without a mark")
	mark(s, time.Minute)
	refused(s, "in quarantine")
	mark(s, 0) // changes nothing
	wantMark(s, time.Minute, true)
	machine.advance(time.Minute)
	serves(s)

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	refused(s, "the directory is gone")
	wantMark(s, 0, false)
	mark(s, 0)
	serves(s)

	closeStore(t, s)
	machine.boot = "boot-2"
	again := open(t, dir, machine.option())
	refused(again, "the machine was restarted")
	wantMark(again, 0, false)
}
