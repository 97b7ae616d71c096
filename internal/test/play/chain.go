package play

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// Chain is a history of updates that insert, replace and remove records of a table at random, until
// [Chain.Judge]. Each record of a key is read by one update that certainly succeeds, at most.
type Chain struct {
	t       testing.TB
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu    sync.Mutex
	links []link
	fails int
}

// link is an update of a key: the record that it read and the record that it wrote. A missing record
// is "".
type link struct {
	key, before, after string
	sure               bool
}

// StartChain starts a worker for each of the tables, which may be repeated. A worker of a
// [roomdriver.Transactor] replaces up to three records at a time.
func StartChain(t testing.TB, tables ...roomdriver.Table) *Chain {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	c := &Chain{t: t, cancel: cancel}
	t.Cleanup(c.end)
	for i, table := range tables {
		c.workers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				c.update(context.WithoutCancel(ctx), table, fmt.Sprint(i, ".", n))
			}
		})
	}
	return c
}

func (c *Chain) end() {
	c.cancel()
	c.workers.Wait()
}

// update makes one call, which writes the text, and records it.
func (c *Chain) update(ctx context.Context, table roomdriver.Table, text string) {
	links, err := transact(ctx, table, func() []byte {
		if rand.IntN(4) == 0 {
			return nil
		}
		return []byte(endless + text)
	})
	if err != nil {
		time.Sleep(time.Millisecond) // the table may not be connected again yet
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.fails++
	}
	if errors.Is(err, driver.ErrUnavailable) {
		return
	}
	for _, l := range links {
		if l.sure = err == nil; l.before != l.after {
			c.links = append(c.links, l)
		}
	}
}

// transact replaces one record, or up to three, and returns what it has read and written.
func transact(ctx context.Context, table roomdriver.Table, next func() []byte) (links []link, err error) {
	replace := func(l *link, record []byte) []byte {
		after := next()
		l.before, l.after = string(record), string(after)
		return after
	}
	several, ok := table.(roomdriver.Transactor)
	if !ok {
		l := link{key: keys[rand.IntN(len(keys))]}
		err = table.Update(ctx, l.key, func(record []byte, _ time.Time) ([]byte, error) { return replace(&l, record), nil })
		return []link{l}, err
	}
	var items []roomdriver.Item
	for _, k := range slices.Sorted(slices.Values(rand.Perm(len(keys))[:1+rand.IntN(len(keys))])) {
		items, links = append(items, roomdriver.Item{Key: keys[k]}), append(links, link{key: keys[k]})
	}
	skipped, err := several.Transact(ctx, items, func(i int, found roomdriver.Found) roomdriver.Change {
		return roomdriver.Change{Record: replace(&links[i], found.Record)}
	})
	for _, i := range skipped {
		links[i] = link{}
	}
	return links, err
}

var keys = []string{"chain0", "chain1", "chain2"}

// endless begins a record that no sweep removes.
const endless = "\x01\x7f\xff\xff\xff\xff\xff\xff\xff"

// Await waits until there are so many updates that may have succeeded, and calls that failed.
func (c *Chain) Await(updates, failures int) {
	c.t.Helper()
	enough := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.links) >= updates && c.fails >= failures
	}
	for start := time.Now(); !enough(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > patience {
			c.t.Fatalf("%d updates and %d failures, want %d and %d", len(c.links), c.fails, updates, failures)
		}
	}
}

// Judge ends the workers, and reports updates that cannot have happened one after the other.
func (c *Chain) Judge() {
	c.t.Helper()
	c.end()
	judge(c.t, c.links)
}

func judge(t testing.TB, links []link) {
	t.Helper()
	written, read := make(map[link]bool), make(map[link]link)
	for _, l := range links {
		written[link{key: l.key, after: l.after}] = true
	}
	for _, l := range links {
		at := link{key: l.key, before: l.before}
		if l.before == "" {
			continue
		}
		if other, twice := read[at]; twice && l.sure {
			t.Errorf("both %+v and %+v follow %q", other, l, l.before)
		}
		if l.sure {
			read[at] = l
		}
		if !written[link{key: l.key, after: l.before}] {
			t.Errorf("%+v has read a record that was certainly not written", l)
		}
	}
}
