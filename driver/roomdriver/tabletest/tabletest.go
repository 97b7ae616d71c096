// Package tabletest checks that a [roomdriver.Table] keeps its contract. The conformance
// suite [github.com/leasehold-go/leasehold/driver/drivertest] plays locks on a table;
// this suite plays the updates themselves: many at once, on a few keys, with removals.
//
//	func TestTable(t *testing.T) {
//		tabletest.Run(t, func(t testing.TB) roomdriver.Table { return open(t) })
//	}
//
// A table passes both suites.
package tabletest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// Run plays the suite as subtests. Each call of open returns another table on the same
// records, as another process has its own; Run closes it. The records of a subtest have a
// prefix of their own. Run starts no parallel subtests.
func Run(t *testing.T, open func(t testing.TB) roomdriver.Table) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) { play(t, r, open) })
	}
}

// row is a check of the suite.
type row struct {
	name string
	why  string // is printed if the check fails
	play func(*suite)
}

var rows = []row{
	{"Update_LaterReadsWhatEarlierWrote", "an update that reads an old record grants a lock that is held", later},
	{"Update_ErrorOfTheStepChangesNothing", "the driver refuses a call by such an error", refusal},
	{"Update_EndedContextChangesNothing", "the driver reports that the record is unchanged", ended},
	{"Update_KeysAreComparedByteByByte", "two locks exclude each other if the table takes their keys for equal", keys},
	{"Update_RecordsHaveAnyBytes", "a record that the table cuts or converts is refused later", content},
	{"Update_OvertakenUpdateWritesNothing", "a removal that does not look at the record removes the next holder's lease", overtaken},
	{"Update_EachRecordIsReplacedOnce", "two updates that replace the same record grant a lock twice", replaced},
	{"Token_RisesForEachKey", "a resource refuses writes with a smaller token than it has seen", tokens},
	{"List_ReturnsTheRecordsOfAPrefix", "leasehold list and the sweep miss locks", listing},
	{"Sweep_KeepsRecordsThatLive", "a removed record is a lost lease", sweeping},
}

// suite is one row on one table.
type suite struct {
	testing.TB
	prefix string
	open   func(testing.TB) roomdriver.Table
	tables []roomdriver.Table
}

func play(t testing.TB, r row, open func(testing.TB) roomdriver.Table) {
	s := &suite{TB: t, prefix: fmt.Sprintf("tabletest/%s/%x/", r.name, rand.Uint64()), open: open}
	defer func() {
		if t.Failed() {
			t.Logf("why: %s", r.why)
		}
		for _, table := range s.tables {
			if err := table.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	}()
	r.play(s)
}

// table opens a further table.
func (s *suite) table() roomdriver.Table {
	s.Helper()
	table := s.open(s.TB)
	s.tables = append(s.tables, table)
	return table
}

// record returns a record with a payload that never ends, as far as a table looks into it.
func record(payload string) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{1}, math.MaxInt64), payload...)
}

// expired returns a record that may be forgotten.
func expired(payload string) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{1}, 1), payload...)
}

func show(record []byte) string {
	if record == nil {
		return "no record"
	}
	return fmt.Sprintf("%.40q (%d bytes)", record[min(9, len(record)):], len(record))
}

// replace updates the record of a key and returns the previous record.
func (s *suite) replace(table roomdriver.Table, key string, next []byte) (before []byte) {
	s.Helper()
	err := table.Update(s.Context(), key, func(found []byte, _ time.Time) ([]byte, error) {
		before = bytes.Clone(found)
		return next, nil
	})
	if err != nil {
		s.Errorf("update %q: %v", key, err)
	}
	return before
}

// want checks the record of a key by an update without a change, and by Read.
func (s *suite) want(table roomdriver.Table, key string, want []byte) {
	s.Helper()
	var got []byte
	err := table.Update(s.Context(), key, func(found []byte, _ time.Time) ([]byte, error) {
		got = bytes.Clone(found)
		return found, nil
	})
	if err != nil || !same(got, want) {
		s.Errorf("the record of %q is %s, %v; want %s", key, show(got), err, show(want))
	}
	if reader, ok := table.(roomdriver.Reader); ok {
		if got, _, err := reader.Read(s.Context(), key); err != nil || !same(got, want) {
			s.Errorf("Read(%q) returns %s, %v; want %s", key, show(got), err, show(want))
		}
	}
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func later(s *suite) {
	a, b, key := s.table(), s.table(), s.prefix+"k"
	s.want(a, key, nil)
	for i, step := range []struct {
		table        roomdriver.Table
		before, next []byte
	}{
		{a, nil, record("one")},
		{b, record("one"), record("two")},
		{a, record("two"), nil},
		{b, nil, record("one")},
		{b, record("one"), record("one")},
		{a, record("one"), nil},
	} {
		if before := s.replace(step.table, key, step.next); !same(before, step.before) {
			s.Errorf("step %d: the record was %s, want %s", i, show(before), show(step.before))
		}
		s.want(a, key, step.next)
		s.want(b, key, step.next)
	}
}

func refusal(s *suite) {
	table, refused := s.table(), errors.New("refused")
	for _, before := range [][]byte{nil, record("before")} {
		key := s.prefix + show(before)
		s.replace(table, key, before)
		err := table.Update(s.Context(), key, func([]byte, time.Time) ([]byte, error) { return record("after"), refused })
		if !errors.Is(err, refused) {
			s.Errorf("the error is %v, want that of the step", err)
		}
		s.want(table, key, before)
		s.replace(table, key, nil)
	}
}

func ended(s *suite) {
	table, key := s.table(), s.prefix+"k"
	s.replace(table, key, record("before"))
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	err := table.Update(ctx, key, func([]byte, time.Time) ([]byte, error) { return record("after"), nil })
	switch {
	case err == nil:
		s.want(table, key, record("after")) // a table may finish an update that it has begun
	case errors.Is(err, driver.ErrUnavailable):
		s.want(table, key, record("before"))
	}
	s.replace(table, key, nil)
}

func keys(s *suite) {
	table := s.table()
	long := strings.Repeat("ä", (512-len(s.prefix))/2)
	all := []string{"a", "A", "a ", " a", "a/", "a/b", "a//b", "a/../b", "a%2Fb", "a*", "a?", "a.b", ".", "..", "{a}", "a'b", `a"b`, `a\b`,
		"é", "e\u0301", "ﬁ", "fi", "ß", "ss", "\U0001F512", "", long, long[2:]}
	for i, key := range all {
		if before := s.replace(table, s.prefix+key, record(fmt.Sprint(i))); before != nil {
			s.Errorf("%q has the record of %q", key, all[slices.IndexFunc(all, func(k string) bool { return same(before, record(fmt.Sprint(slices.Index(all, k)))) })])
		}
	}
	own := "\x01" + s.prefix // as the driver's own records
	s.replace(table, own, record("own"))
	s.want(table, own, record("own"))
	s.replace(table, own, nil)
	for i, key := range all {
		s.want(table, s.prefix+key, record(fmt.Sprint(i)))
		s.replace(table, s.prefix+key, nil)
	}
}

func content(s *suite) {
	table, key := s.table(), s.prefix+"k"
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, payload := range []string{"", "\x00", " ", "\n", string(every), strings.Repeat(string(every), 400)} {
		s.replace(table, key, record(payload))
		s.want(table, key, record(payload))
	}
	s.replace(table, key, nil)
}

// overtaken makes an update while another one is between its reading and its writing. If
// the table locks the record, the second update waits; otherwise the first one begins
// again. The second is the later one in both cases.
func overtaken(s *suite) {
	const pause = 100 * time.Millisecond // for a table that locks the record
	first, second := s.table(), s.table()
	for i, c := range []struct{ before, first, second []byte }{
		{record("before"), nil, record("second")},
		{record("before"), record("first"), record("second")},
		{record("before"), record("first"), nil},
		{nil, record("first"), record("second")},
	} {
		key := fmt.Sprint(s.prefix, i)
		s.replace(first, key, c.before)
		var found, read []byte
		var begin sync.Once
		done := make(chan struct{})
		err := first.Update(s.Context(), key, func(record []byte, _ time.Time) ([]byte, error) {
			begin.Do(func() {
				go func() {
					defer close(done)
					read = s.replace(second, key, c.second)
				}()
				select {
				case <-done:
				case <-time.After(pause):
				}
			})
			if found = bytes.Clone(record); !same(record, c.before) {
				return record, nil
			}
			return c.first, nil
		})
		if err != nil {
			s.Errorf("case %d: %v", i, err)
		}
		<-done
		s.want(first, key, c.second)
		switch {
		case same(read, c.first): // it waited
		case !same(read, c.before):
			s.Errorf("case %d: the second update reads %s, want %s or %s", i, show(read), show(c.before), show(c.first))
		case !same(found, c.second):
			s.Errorf("case %d: the first update was overtaken and reads %s, want %s", i, show(found), show(c.second))
		}
		s.replace(first, key, nil)
	}
}

// replaced updates a few keys from many goroutines. All records that it writes differ, so
// exactly one update must read each record: two readers granted a lock twice, and a record
// without a reader was lost. The clock does not go back from one update to the next.
func replaced(s *suite) {
	const workers, updates, names = 8, 60, 2
	h := history{suite: s, reads: make(map[string]int), written: make(map[string]int64), removals: make(map[string]int)}
	tables := []roomdriver.Table{s.table(), s.table(), s.table()}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range updates {
				h.update(tables[w%len(tables)], fmt.Sprint(s.prefix, i%names), fmt.Sprintf("%d.%d", w, i))
			}
		})
	}
	all.Wait()
	for name := range names {
		key := fmt.Sprint(s.prefix, name)
		if last := s.replace(tables[0], key, nil); last != nil {
			h.reads[key+string(last)]++
			h.removals[key]++
		}
		if made := h.reads[key]; made != h.removals[key] {
			s.Errorf("%q was made %d times and removed %d times", key, made, h.removals[key])
		}
	}
	for id := range h.written {
		if n := h.reads[id]; n != 1 && !s.Failed() {
			s.Errorf("%d updates replaced the record %q, want 1", n, id)
		}
	}
}

// history counts the updates of a row.
type history struct {
	*suite
	mu       sync.Mutex
	reads    map[string]int   // updates that read a record, by key and record; no record is empty
	written  map[string]int64 // µs of the clock at the update, by key and record
	removals map[string]int   // by key
}

// update makes one update: it replaces the record, and every third time removes it.
func (h *history) update(table roomdriver.Table, key, id string) {
	var before, next []byte
	var at time.Time
	step := func(found []byte, now time.Time) []byte {
		for range rand.N(20) {
			runtime.Gosched()
		}
		before, at, next = bytes.Clone(found), now, record(id)
		if before != nil && rand.N(3) == 0 {
			next = nil
		}
		return bytes.Clone(next)
	}
	for try := 0; ; try++ {
		done, err := change(h.Context(), table, key, step)
		if (errors.Is(err, driver.ErrUnavailable) || err == nil && !done) && try < 1000 {
			if h.Context().Err() != nil {
				return
			}
			continue // the record is unchanged
		}
		if err != nil || !done {
			h.Errorf("update %q: %t, %v", key, done, err)
			return
		}
		break
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads[key+string(before)]++
	if since, ok := h.written[key+string(before)]; ok && at.UnixMicro() < since {
		h.Errorf("the clock went back by %d µs from one update to the next", since-at.UnixMicro())
	}
	if next == nil {
		h.removals[key]++
		return
	}
	h.written[key+string(next)] = at.UnixMicro()
}

// change makes an update in one of the ways that the table has. done is false if the
// record was replaced in between.
func change(ctx context.Context, table roomdriver.Table, key string, step func([]byte, time.Time) []byte) (done bool, err error) {
	x, ok := table.(roomdriver.Exchanger)
	if !ok || rand.N(2) == 0 {
		return true, table.Update(ctx, key, func(found []byte, now time.Time) ([]byte, error) { return step(found, now), nil })
	}
	found, now, err := x.Read(ctx, key)
	if err != nil {
		return false, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	if found == nil { // a record is made with a token
		return false, nil
	}
	done, _, err = x.Exchange(ctx, roomdriver.Exchange{
		Key: key, Before: found, From: now, Until: now.Add(time.Minute), Change: roomdriver.Change{Record: step(found, now)},
	})
	return done, err
}

// tokens takes tokens for one key in every way that the table has, while it has a record and none.
func tokens(s *suite) {
	a, key, last := s.table(), s.prefix+"k", int64(0)
	if _, ok := a.(roomdriver.Transactor); !ok {
		return
	}
	rises := func(what string, token int64) {
		s.Helper()
		if token <= last {
			s.Errorf("%s: token %d follows %d", what, token, last)
		}
		last = token
	}
	for i, table := range []roomdriver.Table{a, s.table(), a} {
		for _, next := range [][]byte{nil, record("12345678 k"), nil} {
			token := int64(0)
			_, err := table.(roomdriver.Transactor).Transact(s.Context(), []roomdriver.Item{{Key: key}}, func(_ int, found roomdriver.Found) roomdriver.Change {
				token = found.Token
				return roomdriver.Change{Record: next, Mints: true}
			})
			if _, ok := table.(roomdriver.Exchanger); err == nil && token == 0 && !ok {
				return // it has no counter
			}
			if rises("a transaction", token); err != nil {
				s.Error(err)
			}
		}
		if x, ok := table.(roomdriver.Exchanger); ok {
			for _, before := range [][]byte{nil, record("12345678 k")} {
				s.replace(table, key, before)
				var done bool
				var found roomdriver.Found
				_, now, err := x.Read(s.Context(), key)
				for try := 0; try < 10 && !done && err == nil; try++ {
					done, found, err = x.Exchange(s.Context(), roomdriver.Exchange{
						Key: key, Before: before, From: now, Until: now.Add(time.Minute),
						Change: roomdriver.Change{Mints: true, Record: append(record("\x00\x00\x00\x00\x00\x00\x00\x01 "), fmt.Sprint(i)...)},
					})
				}
				if err != nil || !done || len(found.Record) < 17 {
					s.Errorf("%t, %+v, %v; want the record that was written", done, found, err)
					continue
				}
				rises("a conditional write", int64(binary.BigEndian.Uint64(found.Record[9:]))) //nolint:gosec // a token
				s.want(table, key, found.Record)
				s.replace(table, key, nil)
			}
		}
	}
}

func listing(s *suite) {
	table := s.table()
	want := make(map[string]string)
	for i := range 230 { // several pages
		key := fmt.Sprintf("%sin/%d", s.prefix, i)
		want[key] = string(record(fmt.Sprint(i)))
		s.replace(table, key, []byte(want[key]))
		if i%20 == 0 {
			s.replace(table, fmt.Sprintf("%sout/%d", s.prefix, i), record(""))
			gone := fmt.Sprintf("%sin/gone%d", s.prefix, i)
			s.replace(table, gone, record(""))
			s.replace(table, gone, nil)
		}
	}
	got := make(map[string]string)
	for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
		page, err := table.List(s.Context(), s.prefix+"in/", cursor)
		if err != nil {
			s.Fatalf("list: %v", err)
		}
		if pages > 1000 {
			s.Fatalf("the listing has no end")
		}
		if page.Now.IsZero() {
			s.Errorf("a page has no time")
		}
		for _, e := range page.Entries {
			got[e.Key] = string(e.Record)
		}
		cursor = page.Next
	}
	for key, record := range want {
		if got[key] != record {
			s.Errorf("the listing has %q with %s, want %s", key, show([]byte(got[key])), show([]byte(record)))
		}
		delete(got, key)
	}
	for key := range got {
		s.Errorf("the listing has %q, which is not there or has another prefix", key)
	}
	for key := range want {
		s.replace(table, key, nil)
	}
	for i := 0; i < 230; i += 20 {
		s.replace(table, fmt.Sprintf("%sout/%d", s.prefix, i), nil)
	}
}

// sweeping replaces records that may be forgotten by records that live, while the table
// sweeps.
func sweeping(s *suite) {
	table := s.table()
	sweeper, ok := table.(roomdriver.Sweeper)
	if !ok {
		return // the driver removes records by Update
	}
	stop, swept := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swept)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := sweeper.Sweep(s.Context(), 100); err != nil && s.Context().Err() == nil {
				s.Errorf("sweep: %v", err)
				return
			}
		}
	}()
	for i := range 100 {
		key := fmt.Sprint(s.prefix, i%5)
		s.replace(table, key, expired(fmt.Sprint(i)))
		runtime.Gosched()
		s.replace(table, key, record(fmt.Sprint(i)))
		s.want(table, key, record(fmt.Sprint(i)))
	}
	close(stop)
	<-swept
	s.replace(table, s.prefix+"over", expired(""))
	removed, err := sweeper.Sweep(s.Context(), 100)
	if removed < 1 || err != nil {
		s.Errorf("a sweep removed %d records, %v; want the expired record", removed, err)
	}
	for i := range 5 {
		s.want(table, fmt.Sprint(s.prefix, i), record(fmt.Sprint(95+i)))
		s.replace(table, fmt.Sprint(s.prefix, i), nil)
	}
}
