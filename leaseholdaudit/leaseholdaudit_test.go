package leaseholdaudit_test

import (
	"bytes"
	"encoding/json"
	"errors"
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

func TestAudit_TellsWhoHeldWhatAndWhyItEnded(t *testing.T) {
	store := memdriver.New()
	var text bytes.Buffer
	client, err := leasehold.New(store, leasehold.WithName("worker-7"), leasehold.WithObserver(leaseholdaudit.New(&text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	one, err := client.Mutex("orders/42").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	place, err := client.Semaphore("gpu", 4).LockN(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Release(); err != nil {
		t.Fatal(err)
	}
	if err := client.Break(t.Context(), "gpu", place.ID(), "stuck"); err != nil {
		t.Fatal(err)
	}
	<-place.Context().Done()
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	all := lines(t, text.Bytes())
	if len(all) != 4 {
		t.Fatalf("%d lines: %s", len(all), text.String())
	}
	got, gpu, released, broken := all[0], all[1], all[2], all[3]
	if got.Event != "granted" || got.Key != "orders/42" || got.Lease != one.ID() || got.Owner != "worker-7" || got.Token != one.Token() || got.Mode != "exclusive" || got.Time.IsZero() {
		t.Errorf("%+v", got)
	}
	if gpu.Event != "granted" || gpu.Mode != "shared" || gpu.Limit != 4 || gpu.Weight != 2 {
		t.Errorf("%+v", gpu)
	}
	if released.Event != "ended" || released.Lease != one.ID() || released.Reason != "released" || released.HeldMs < 1 || released.Owner != "worker-7" {
		t.Errorf("%+v", released)
	}
	if broken.Event != "ended" || broken.Lease != place.ID() || broken.Reason != "broken" || !strings.Contains(broken.Detail, "stuck") {
		t.Errorf("%+v", broken)
	}
}

func TestAudit_ABreakThatIsNoticedByTheReleaseIsTold(t *testing.T) {
	store := memdriver.New()
	var text bytes.Buffer
	client, err := leasehold.New(store, leasehold.WithObserver(leaseholdaudit.New(&text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	lease, err := client.Mutex("k").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Break(t.Context(), "k", lease.ID(), "stuck"); err != nil { // by another process
		t.Fatal(err)
	}
	_ = lease.Release()
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	all := lines(t, text.Bytes())
	if last := all[len(all)-1]; last.Lease != lease.ID() || !strings.Contains(last.Detail, "stuck") {
		t.Errorf("%s", text.String())
	}
}

// full is a disk that is full for a while.
type full struct {
	bytes.Buffer
	err error
}

func (f *full) Write(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return f.Buffer.Write(p)
}

func TestAudit_ATrailThatCannotBeWrittenIsToldOnceAndHoldsNobodyUp(t *testing.T) {
	disk := &full{err: errors.New("no space left")}
	var told []error
	client, err := leasehold.New(memdriver.New(), leasehold.WithObserver(leaseholdaudit.New(disk, func(err error) { told = append(told, err) })))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := range 4 {
		if i == 3 {
			disk.err = nil
		}
		lease, err := client.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 2 || told[0] == nil || told[1] != nil {
		t.Errorf("%v", told)
	}
}

// narrow is a disk that has room for some bytes of the next line only.
type narrow struct {
	bytes.Buffer
	room int
}

func (n *narrow) Write(p []byte) (int, error) {
	if n.room > 0 && n.room < len(p) {
		_, _ = n.Buffer.Write(p[:n.room])
		return n.room, errors.New("no space left")
	}
	return n.Buffer.Write(p)
}

func TestAudit_ALineThatIsCutOffDoesNotSpoilTheNext(t *testing.T) {
	disk := &narrow{room: 10}
	client, err := leasehold.New(memdriver.New(), leasehold.WithObserver(leaseholdaudit.New(disk, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	lease, err := client.Mutex("k").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	disk.room = 0
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	_, whole, _ := strings.Cut(disk.String(), "\n")
	var got line
	if err := json.Unmarshal([]byte(whole), &got); err != nil || got.Event != "ended" {
		t.Errorf("%q: %v", disk.String(), err)
	}
}

func TestAudit_AFileThatWasRenamedIsWrittenToNoMoreAfterReopen(t *testing.T) {
	name := filepath.Join(t.TempDir(), "locks.jsonl")
	file, err := leaseholdaudit.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	write := func(text string) {
		if _, err := file.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	if err := os.Rename(name, name+".1"); err != nil {
		t.Fatal(err)
	}
	write("two\n")
	if err := file.Reopen(); err != nil {
		t.Fatal(err)
	}
	write("three\n")
	old, _ := os.ReadFile(name + ".1")
	now, _ := os.ReadFile(name)
	if string(old) != "one\ntwo\n" || string(now) != "three\n" {
		t.Errorf("%q, then %q", old, now)
	}
	if err := os.RemoveAll(filepath.Dir(name)); err != nil {
		t.Fatal(err)
	}
	if file.Reopen() == nil {
		t.Error("a directory that is gone")
	}
	write("four\n")
}
