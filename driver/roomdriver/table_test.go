package roomdriver_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// rows is a table in memory that drivers share.
type rows struct {
	roomdriver.Bus

	mu      sync.Mutex
	records map[string][]byte
	counter int64         // the last token
	calls   int           // updates and transactions
	skew    time.Duration // of the clock
	lose    error         // is returned after an update that was made
	after   int           // event is called once, after so many accesses
	event   func()
}

func (t *rows) now() time.Time { return time.Now().Add(t.skew) }

func newRows() *rows { return &rows{records: make(map[string][]byte)} }

func (t *rows) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	t.mu.Lock()
	defer t.done()
	t.calls++
	next, err := f(slices.Clone(t.records[key]), t.now())
	if err != nil {
		return fmt.Errorf("update %q: %w", key, err)
	}
	t.put(key, next)
	return t.lose
}

// done ends an access.
func (t *rows) done() {
	t.after--
	now := t.after == 0
	t.mu.Unlock()
	if now {
		t.event()
	}
}

func (t *rows) put(key string, record []byte) {
	if record == nil {
		delete(t.records, key)
	} else {
		t.records[key] = slices.Clone(record)
	}
}

// List returns pages of few records, to have several.
func (t *rows) List(_ context.Context, prefix, cursor string) (roomdriver.Page, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	page := roomdriver.Page{Now: t.now()}
	for _, key := range slices.Sorted(maps.Keys(t.records)) {
		if key <= cursor || !strings.HasPrefix(key, prefix) {
			continue
		}
		if len(page.Entries) == 20 {
			page.Next = page.Entries[19].Key
			break
		}
		page.Entries = append(page.Entries, roomdriver.Entry{Key: key, Record: t.records[key]})
	}
	return page, nil
}

func (t *rows) Close() error { return nil }

func (t *rows) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.records)
}

// next takes the next token, which is the clock at first.
func (t *rows) next() int64 {
	if t.counter == 0 {
		t.counter = t.now().UnixMicro()
	}
	t.counter++
	return t.counter
}

// quiet is a table that delivers no messages.
type quiet struct{ roomdriver.Table }

// repeating is a table that runs each update twice, as a table does after a conflict of
// transactions.
type repeating struct{ *rows }

func (t repeating) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	return t.rows.Update(ctx, key, func(record []byte, now time.Time) ([]byte, error) {
		if _, err := f(slices.Clone(record), now.Add(-time.Millisecond)); err != nil {
			return nil, err
		}
		return f(record, now)
	})
}

// swapping is a table that compares and swaps, and is overtaken now and then.
type swapping struct{ *rows }

func (t swapping) Load(_ context.Context, key string) ([]byte, string, time.Time, error) {
	t.mu.Lock()
	defer t.done()
	return t.records[key], string(t.records[key]), t.now(), nil
}

func (t swapping) Swap(_ context.Context, key, version string, next []byte) (bool, error) {
	t.mu.Lock()
	defer t.done()
	if t.calls++; t.calls%3 == 0 || string(t.records[key]) != version {
		return false, nil
	}
	t.put(key, next)
	return true, nil
}

// ledger is a table with transactions. It checks the calls of Transact.
type ledger struct {
	*rows
	busy  func(key string) bool // keys that Transact leaves out, if it has several items
	fails error                 // after f

	counts    bool // it has a counter of tokens
	overtaken bool // whether some exchanges are overtaken
}

func (t *ledger) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	return roomdriver.UpdateBy(ctx, t, key, f)
}

func (t *ledger) Transact(ctx context.Context, items []roomdriver.Item, f func(int, roomdriver.Found) roomdriver.Change) (skipped []int, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	messages, skipped, err := t.commit(items, f)
	_ = t.Notify(ctx, messages)
	return skipped, err
}

func (t *ledger) commit(items []roomdriver.Item, f func(int, roomdriver.Found) roomdriver.Change) (messages []roomdriver.Message, skipped []int, err error) {
	t.mu.Lock()
	defer t.done()
	t.calls++
	changes := make(map[int]roomdriver.Change)
	for i, item := range items {
		if i > 0 && item.Key <= items[i-1].Key {
			return nil, nil, fmt.Errorf("%q comes after %q", item.Key, items[i-1].Key)
		}
		if len(items) > 1 && t.busy != nil && t.busy(item.Key) {
			skipped = append(skipped, i)
			continue
		}
		found := roomdriver.Found{Record: t.records[item.Key], Now: t.now()}
		if item.Note != "" {
			found.Note = t.records[item.Note]
		}
		if item.Also != "" {
			found.Also = t.records[item.Also]
		}
		if t.counts && len(items) == 1 {
			found.Token = t.next()
		}
		changes[i] = f(i, found)
	}
	if t.fails != nil {
		return nil, nil, t.fails
	}
	for i, c := range changes {
		t.put(items[i].Key, c.Record)
		if items[i].Note != "" {
			t.put(items[i].Note, c.Note)
		}
		messages = append(messages, c.Messages...)
		t.counter = max(t.counter, c.Token)
	}
	return messages, skipped, nil
}

// exchanging is a table that also has conditional writes. Every seventh is overtaken, and
// every eleventh must become a transaction.
type exchanging struct{ *ledger }

func (t exchanging) Read(_ context.Context, key string) ([]byte, time.Time, error) {
	t.mu.Lock()
	defer t.done()
	t.calls++
	return t.records[key], t.now(), nil
}

func (t exchanging) Exchange(ctx context.Context, x roomdriver.Exchange) (done bool, found roomdriver.Found, err error) {
	if err := ctx.Err(); err != nil {
		return false, found, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	done, found = t.swap(x)
	return done, found, t.lose
}

func (t exchanging) swap(x roomdriver.Exchange) (done bool, found roomdriver.Found) {
	t.mu.Lock()
	defer t.done()
	if t.calls++; t.overtaken && t.calls%11 == 0 {
		return false, found
	}
	found.Now, found.Record = t.now(), t.records[x.Key]
	same := (found.Record == nil) == (x.Before == nil) && string(found.Record) == string(x.Before)
	if !same || t.overtaken && t.calls%7 == 0 || found.Now.Before(x.From) || found.Now.After(x.Until) {
		return false, found
	}
	if t.put(x.Key, x.Record); x.Mints {
		found.Record = t.records[x.Key]
		token := found.Record[9:17]
		binary.BigEndian.PutUint64(token, max(uint64(t.next()), binary.BigEndian.Uint64(token)))
	}
	return true, found
}
