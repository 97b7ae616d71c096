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
	for one := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		var l line
		if err := json.Unmarshal([]byte(one), &l); err != nil {
			t.Fatalf("%v: %s", err, one)
		}
		all = append(all, l)
	}
	return all
}

// open returns a client with a trail, which ends with the test.
func open(t *testing.T, store *memdriver.Driver, trail io.Writer, failed func(error)) *leasehold.Client {
	t.Helper()
	client, err := leasehold.New(store, leasehold.WithName("worker-7"), leasehold.WithObserver(leaseholdaudit.New(trail, failed)))
	must(t, err)
	t.Cleanup(func() { must(t, client.Close()) })
	return client
}

func take(t *testing.T, lock leasehold.Locker) *leasehold.Lease {
	t.Helper()
	lease, err := lock.Lock(t.Context())
	must(t, err)
	return lease
}

// must ends the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAudit_TellsWhoHeldWhatAndWhyItEnded(t *testing.T) {
	store := memdriver.New()
	var text bytes.Buffer
	client := open(t, store, &text, nil)
	one, place := take(t, client.Mutex("orders/42")), take(t, client.Semaphore("gpu", 4).Places(2))
	must(t, one.Release())
	must(t, client.Break(t.Context(), "gpu", place.ID(), "stuck"))
	<-place.Context().Done()
	elsewhere := take(t, client.Mutex("k"))
	_, err := store.Break(t.Context(), "k", elsewhere.ID(), "by another process") // which the release notices
	must(t, err)
	_ = elsewhere.Release()
	must(t, client.Close())
	all := lines(t, text.Bytes())
	if len(all) < 6 {
		t.Fatalf("%d lines: %s", len(all), text.String())
	}
	got, gpu, released, broken := all[0], all[1], all[2], all[3]
	if got.Event != "granted" || got.Key != "orders/42" || got.Lease != one.ID() || got.Owner != "worker-7" ||
		got.Token != one.Token() || got.Mode != "exclusive" || got.Time.IsZero() {
		t.Errorf("%+v", got)
	}
	if gpu.Event != "granted" || gpu.Mode != "shared" || gpu.Limit != 4 || gpu.Weight != 2 {
		t.Errorf("%+v", gpu)
	}
	if released.Event != "ended" || released.Lease != one.ID() || released.Reason != "released" ||
		released.HeldMs < 1 || released.Owner != "worker-7" {
		t.Errorf("%+v", released)
	}
	if broken.Event != "ended" || broken.Lease != place.ID() || broken.Reason != "broken" || !strings.Contains(broken.Detail, "stuck") {
		t.Errorf("%+v", broken)
	}
	if all[4].Event != "granted" || all[4].Key != "k" {
		t.Errorf("%+v", all[4])
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
		must(t, take(t, client.Mutex("k")).Release())
	}
	if len(told) != 2 || told[0] == nil || told[1] != nil {
		t.Errorf("%v", told)
	}
}

func TestAudit_ALineThatIsCutOffDoesNotSpoilTheNext(t *testing.T) {
	narrow := &disk{room: 10}
	lease := take(t, open(t, memdriver.New(), narrow, nil).Mutex("k"))
	narrow.room = -1
	must(t, lease.Release())
	_, whole, _ := strings.Cut(narrow.String(), "\n")
	var got line
	if err := json.Unmarshal([]byte(whole), &got); err != nil || got.Event != "ended" {
		t.Errorf("%q: %v", narrow.String(), err)
	}
}

func TestAudit_AFileThatWasRenamedIsWrittenToNoMoreAfterReopen(t *testing.T) {
	name := filepath.Join(t.TempDir(), "locks.jsonl")
	file, err := leaseholdaudit.Open(name)
	must(t, err)
	defer file.Close()
	write := func(text string) {
		_, err := file.Write([]byte(text))
		must(t, err)
	}
	write("one\n")
	must(t, os.Rename(name, name+".1"))
	write("two\n")
	must(t, file.Reopen())
	write("three\n")
	old, _ := os.ReadFile(name + ".1")
	now, _ := os.ReadFile(name)
	if string(old) != "one\ntwo\n" || string(now) != "three\n" {
		t.Errorf("%q, then %q", old, now)
	}
	must(t, os.RemoveAll(filepath.Dir(name)))
	if file.Reopen() == nil {
		t.Error("a directory that is gone")
	}
	write("four\n")
}
