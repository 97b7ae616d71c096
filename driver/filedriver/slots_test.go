package filedriver

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// recordPath returns the path of a key's record.
func recordPath(s *Driver, key string) string {
	name := fileName(key)
	return s.shardOf(name).tree.path(name)
}

func TestRecord_HalfWrittenByAKilledWriterIsTheOneBefore(t *testing.T) {
	s := open(t, t.TempDir())
	grant(t, s, driver.Request{Key: "k", ID: "holder"})
	whole, err := os.ReadFile(recordPath(s, "k"))
	noError(t, err)
	// A record that does not end in 0 is being written over the second slot.
	next := formatSlot(2, encode("k", &room.Record{Spent: room.Spent{1: 1}}))
	for n := range len(next) - 1 {
		torn := bytes.Clone(whole)
		copy(torn[len(torn)/2:], next[:n])
		noError(t, os.WriteFile(recordPath(s, "k"), torn, 0o600))
		snap, err := s.Inspect(t.Context(), "k")
		if n > 0 && n < headerSize {
			// No kernel cuts a write there: it is damage.
			if !errors.Is(err, driver.ErrMismatch) {
				t.Fatalf("cut after %d bytes: %v, want a mismatch", n, err)
			}
			continue
		}
		if err != nil || len(snap.Holders) != 1 || snap.Holders[0].ID != "holder" {
			t.Fatalf("cut after %d bytes: holders %+v, %v", n, snap.Holders, err)
		}
	}
}

func TestRecord_GrowsAndShrinksInPlace(t *testing.T) {
	s := open(t, t.TempDir())
	grant(t, s, driver.Request{Key: "k", ID: "holder"})
	label := map[string]string{"x": strings.Repeat("y", 1000)}
	for i := range 40 {
		req := driver.Request{Key: "k", ID: "w" + strconv.Itoa(i), TTL: time.Minute, TicketTTL: time.Minute, Labels: label}
		_, err := s.Acquire(t.Context(), req)
		noError(t, err)
	}
	snap, err := s.Inspect(t.Context(), "k")
	if err != nil || len(snap.Waiters) != 40 {
		t.Fatalf("%d waiters, %v; want 40", len(snap.Waiters), err)
	}
	for _, w := range snap.Waiters {
		_, err := s.Release(t.Context(), driver.Ref{Key: "k", ID: w.ID})
		noError(t, err)
	}
	release(t, s, "k", "holder")
}

func TestRecord_DamagedIsReportedAndLeftUntouched(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"empty": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"text":  func(path string) error { return os.WriteFile(path, []byte("hello\n"), 0o600) },
		"zeros": func(path string) error { return os.WriteFile(path, make([]byte, 4096), 0o600) },
		"no record": func(path string) error {
			return os.WriteFile(path, newSlots(append(make([]byte, headerSize), "hello"...)), 0o600)
		},
		"other key": func(path string) error { return os.WriteFile(path, newSlots(encode("z", &room.Record{})), 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"edited": func(path string) error {
			raw := newSlots(encode("k", &room.Record{Head: "somebody"}))
			return os.WriteFile(path, bytes.Replace(raw, []byte("some"), []byte("no_b"), 1), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			path := recordPath(s, "k")
			noError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			noError(t, spoil(path))
			before, _ := os.ReadFile(path)
			_, err := s.Acquire(t.Context(), driver.Request{Key: "k", ID: "id", TTL: time.Minute})
			if !errors.Is(err, driver.ErrMismatch) || !strings.Contains(err.Error(), path) {
				t.Errorf("acquire: %v; want a mismatch that names %s", err, path)
			}
			s.Renew(t.Context(), []driver.Ref{{Key: "k", ID: "id"}, {Key: "other", ID: "id"}}, func(i int, reply driver.Reply, err error) {
				if i == 0 && !errors.Is(err, driver.ErrMismatch) || i == 1 && err != nil {
					t.Errorf("renew %d: %+v, %v", i, reply, err)
				}
			})
			s.sweep()
			keys, _, err := s.List(t.Context(), "", "")
			if err != nil || len(keys) != 1 || keys[0] != "k" {
				t.Errorf("list: %q, %v; want the damaged key", keys, err)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

func FuzzSlots(f *testing.F) {
	one, two := formatSlot(1, encode("k", &room.Record{})), formatSlot(2, encode("k", &room.Record{Spent: room.Spent{1: 1}}))
	f.Add(one, []byte{}, true)
	f.Add(one, two, true)
	f.Add(one, two[:len(two)/2], true)
	f.Add(one, two, false)
	f.Add([]byte(magic), []byte{}, false)
	dir := f.TempDir()
	s, err := Open(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	path := recordPath(s, "k")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		f.Fatal(err)
	}
	// A file has 4 KiB at least, nearly all of it zeros: these are not drawn.
	f.Fuzz(func(t *testing.T, first, second []byte, filled bool) {
		raw := slices.Concat(first, second)
		if size := max(minSlot, len(first), len(second)); filled {
			raw = make([]byte, 2*size)
			copy(raw, first)
			copy(raw[size:], second)
		}
		noError(t, os.WriteFile(path, raw, 0o600))
		if _, err := s.Inspect(context.Background(), "k"); err != nil && !errors.Is(err, driver.ErrMismatch) {
			t.Error(err)
		}
	})
}
