package tabletest

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// memory is a table with versions, and with the faults of a test.
type memory struct {
	fault   string
	mu      sync.Mutex
	records map[string][]byte
	version map[string]int
	start   time.Time
}

func newMemory(fault string) *memory {
	return &memory{fault: fault, records: make(map[string][]byte), version: make(map[string]int), start: time.Now()}
}

func (m *memory) now() time.Time {
	if m.fault == "clock goes back" {
		return m.start.Add(-time.Since(m.start))
	}
	return time.Now()
}

func (m *memory) name(key string) string {
	switch m.fault {
	case "folds case":
		return strings.ToLower(key)
	case "trims keys":
		return strings.TrimSpace(key)
	case "cuts keys":
		return key[:min(len(key), 500)]
	}
	return key
}

func (m *memory) Load(_ context.Context, key string) ([]byte, string, time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.records[m.name(key)]), strconv.Itoa(m.version[m.name(key)]), m.now(), nil
}

func (m *memory) Swap(_ context.Context, key, version string, next []byte) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key = m.name(key)
	unchecked := m.fault == "writes unchecked" || m.fault == "removes unchecked" && next == nil
	if !unchecked && strconv.Itoa(m.version[key]) != version {
		return false, nil
	}
	m.version[key]++
	switch {
	case next == nil && m.fault == "keeps removed records":
		m.records[key] = []byte{}
	case next == nil:
		delete(m.records, key)
	case m.fault == "cuts records":
		m.records[key] = slices.Clone(next[:min(len(next), 1<<16)])
	default:
		m.records[key] = slices.Clone(next)
	}
	return true, nil
}

func (m *memory) List(_ context.Context, prefix, cursor string) (roomdriver.Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	page := roomdriver.Page{Now: m.now()}
	if m.fault == "lists all prefixes" {
		prefix = ""
	}
	for _, key := range slices.Sorted(maps.Keys(m.records)) {
		if key <= cursor || !strings.HasPrefix(key, prefix) {
			continue
		}
		if len(page.Entries) == 100 {
			if m.fault != "lists one page" {
				page.Next = page.Entries[99].Key
			}
			break
		}
		page.Entries = append(page.Entries, roomdriver.Entry{Key: key, Record: m.records[key]})
	}
	return page, nil
}

func (m *memory) Close() error { return nil }

// table has the faults that a Swapper cannot have.
type table struct {
	roomdriver.Table
	*memory
}

func (t table) Close() error { return nil }

func (t table) List(ctx context.Context, prefix, cursor string) (roomdriver.Page, error) {
	return t.memory.List(ctx, prefix, cursor)
}

func (t table) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	err := t.Table.Update(ctx, key, func(record []byte, now time.Time) ([]byte, error) {
		next, err := f(record, now)
		if err != nil && t.fault == "writes after an error" {
			return next, nil
		}
		return next, err
	})
	if t.fault == "hides errors" {
		return nil
	}
	return err
}

func (t table) Sweep(context.Context, int) (removed int, err error) {
	for _, key := range t.over() {
		runtime.Gosched()
		if t.remove(key) {
			removed++
		}
	}
	return removed, nil
}

func (t table) over() (keys []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, record := range t.records {
		if isOver(record) || t.fault == "sweeps living records" {
			keys = append(keys, key)
		}
	}
	return keys
}

func (t table) remove(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !isOver(t.records[key]) && t.fault != "sweeps living records" {
		return false
	}
	t.version[key]++
	delete(t.records, key)
	return true
}

func isOver(record []byte) bool {
	end, _, err := roomdriver.End(record)
	return record != nil && err == nil && end.Before(time.Now())
}

func open(fault string) func(testing.TB) roomdriver.Table {
	m := newMemory(fault)
	return func(testing.TB) roomdriver.Table { return table{roomdriver.FromSwapper(m), m} }
}

func TestRun_PassesATableWithoutFaults(t *testing.T) { Run(t, open("")) }

// inner is a test whose failure does not fail the test around it.
type inner struct{ testing.T }

func (*inner) Context() context.Context { return context.Background() }

// TestRun_FindsEachFault checks that a table with one fault fails the row that is about it.
func TestRun_FindsEachFault(t *testing.T) {
	for fault, name := range map[string]string{
		"writes unchecked":      "Update_OvertakenUpdateWritesNothing",
		"removes unchecked":     "Update_OvertakenUpdateWritesNothing",
		"clock goes back":       "Update_EachRecordIsReplacedOnce",
		"keeps removed records": "Update_LaterReadsWhatEarlierWrote",
		"writes after an error": "Update_ErrorOfTheStepChangesNothing",
		"hides errors":          "Update_ErrorOfTheStepChangesNothing",
		"folds case":            "Update_KeysAreComparedByteByByte",
		"trims keys":            "Update_KeysAreComparedByteByByte",
		"cuts keys":             "Update_KeysAreComparedByteByByte",
		"cuts records":          "Update_RecordsHaveAnyBytes",
		"lists one page":        "List_ReturnsTheRecordsOfAPrefix",
		"lists all prefixes":    "List_ReturnsTheRecordsOfAPrefix",
		"sweeps living records": "Sweep_KeepsRecordsThatLive",
	} {
		t.Run(fault, func(t *testing.T) {
			i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
			in := new(inner)
			done := make(chan struct{})
			go func() {
				defer close(done)
				play(in, rows[i], open(fault))
			}()
			<-done
			if !in.Failed() {
				t.Errorf("%s passes", name)
			}
		})
	}
}
