package leaseholdaudit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/leaseholdaudit"
)

// line is a line of the trail.
type line struct {
	Time                                   time.Time
	Event, Key, Mode, Lease, Owner, Reason string
	Detail                                 string
	Token, WaitedMs, HeldMs                int64
	Limit, Weight                          int
}

func lines(t *testing.T, text []byte) (all []line) {
	t.Helper()
	for one := range bytes.Lines(text) {
		var l line
		ask.NoError(t, json.Unmarshal(one, &l))
		all = append(all, l)
	}
	return all
}

// open returns a client with a trail, which ends with the test.
func open(t *testing.T, store *memdriver.Driver, trail io.Writer, failed func(error)) *leasehold.Client {
	t.Helper()
	client, err := leasehold.New(store, leasehold.WithName("worker-7"), leasehold.WithObserver(leaseholdaudit.New(trail, failed)))
	ask.NoError(t, err)
	t.Cleanup(func() { ask.NoError(t, client.Close()) })
	return client
}

func take(t *testing.T, lock leasehold.Locker) *leasehold.Lease {
	t.Helper()
	lease, err := lock.Lock(t.Context())
	ask.NoError(t, err)
	return lease
}

func TestAudit_TellsWhoHeldWhatAndWhyItEnded(t *testing.T) {
	store := memdriver.New()
	var text bytes.Buffer
	client := open(t, store, &text, nil)
	one, place := take(t, client.Mutex("orders/42")), take(t, client.Semaphore("gpu", 4).Places(2))
	ask.NoError(t, one.Release())
	ask.NoError(t, client.Break(t.Context(), "gpu", place.ID(), "stuck"))
	<-place.Context().Done()
	elsewhere := take(t, client.Mutex("k"))
	_, err := store.Break(t.Context(), "k", elsewhere.ID(), "by another process") // which the release notices
	ask.NoError(t, err)
	_ = elsewhere.Release()
	ask.NoError(t, client.Close())
	all := lines(t, text.Bytes())
	if len(all) < 6 {
		t.Fatalf("%d lines: %s", len(all), text.String())
	}
	for i, want := range []line{
		{Event: "granted", Key: "orders/42", Mode: "exclusive", Lease: one.ID(), Token: one.Token()},
		{Event: "granted", Key: "gpu", Mode: "shared", Lease: place.ID(), Token: place.Token(), Limit: 4, Weight: 2},
		{Event: "ended", Key: "orders/42", Mode: "exclusive", Lease: one.ID(), Token: one.Token(), Reason: "released"},
		{
			Event: "ended", Key: "gpu", Mode: "shared", Lease: place.ID(), Token: place.Token(), Limit: 4, Weight: 2,
			Reason: "broken", Detail: "stuck",
		},
		{Event: "granted", Key: "k", Mode: "exclusive", Lease: elsewhere.ID(), Token: elsewhere.Token()},
	} {
		got := all[i]
		if got.Time.IsZero() || (got.HeldMs > 0) != (want.Event == "ended") || !strings.Contains(got.Detail, want.Detail) {
			t.Errorf("line %d: %+v", i, got)
		}
		want.Owner, want.Time, want.Detail = "worker-7", got.Time, got.Detail
		want.HeldMs, want.WaitedMs = got.HeldMs, got.WaitedMs
		if got != want {
			t.Errorf("line %d: %+v, want %+v", i, got, want)
		}
	}
	if last := all[len(all)-1]; last.Lease != elsewhere.ID() || !strings.Contains(last.Detail, "by another process") {
		t.Errorf("%s", text.String())
	}
}

// disk is a file on a disk that has room for some bytes of each line; a negative number is for all.
type disk struct {
	bytes.Buffer
	room int
}

func (d *disk) Write(p []byte) (int, error) {
	if d.room < 0 || d.room >= len(p) {
		return d.Buffer.Write(p)
	}
	_, _ = d.Buffer.Write(p[:d.room])
	return d.room, errors.New("no space left")
}

func TestAudit_ATrailThatCannotBeWrittenIsToldOnceAndHoldsNobodyUp(t *testing.T) {
	full := new(disk)
	var told []error
	client := open(t, memdriver.New(), full, func(err error) { told = append(told, err) })
	for i := range 4 {
		if i == 3 {
			full.room = -1
		}
		ask.NoError(t, take(t, client.Mutex("k")).Release())
	}
	if len(told) != 2 || told[0] == nil || told[1] != nil {
		t.Errorf("%v", told)
	}
}

func TestAudit_ALineThatIsCutOffDoesNotSpoilTheNext(t *testing.T) {
	narrow := &disk{room: 10}
	lease := take(t, open(t, memdriver.New(), narrow, nil).Mutex("k"))
	narrow.room = -1
	ask.NoError(t, lease.Release())
	_, whole, _ := bytes.Cut(narrow.Bytes(), []byte("\n"))
	if all := lines(t, whole); len(all) != 1 || all[0].Event != "ended" {
		t.Errorf("%q", narrow.String())
	}
}

func TestAudit_AFileThatWasRenamedIsWrittenToNoMoreAfterReopen(t *testing.T) {
	name := filepath.Join(t.TempDir(), "locks.jsonl")
	file, err := leaseholdaudit.Open(name)
	ask.NoError(t, err)
	defer file.Close()
	write := func(text string) {
		_, err := file.Write([]byte(text))
		ask.NoError(t, err)
	}
	write("one\n")
	ask.NoError(t, os.Rename(name, name+".1"))
	write("two\n")
	ask.NoError(t, file.Reopen())
	write("three\n")
	old, _ := os.ReadFile(name + ".1")
	now, _ := os.ReadFile(name)
	if string(old) != "one\ntwo\n" || string(now) != "three\n" {
		t.Errorf("%q, then %q", old, now)
	}
	ask.NoError(t, os.RemoveAll(filepath.Dir(name)))
	if file.Reopen() == nil {
		t.Error("a directory that is gone")
	}
	write("four\n")
}
