package postgresdriver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// link is an update of a key: the record that it read and the record that it wrote. A missing
// record is "".
type link struct {
	key, before, after string
	sure               bool
}

// chain records updates.
type chain struct {
	mu    sync.Mutex
	links []link
	fails int
}

// record returns a record in the format of the table; only these tests read its text.
func record(text string) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{1}, uint64(time.Now().Add(time.Hour).UnixMilli())), text...) //nolint:gosec // after 1970
}

func textOf(record []byte) string {
	if record == nil {
		return ""
	}
	return string(record[9:])
}

// work inserts, updates and deletes at random, one key or several at a time.
func (c *chain) work(ctx context.Context, t *table, name string) {
	keys := []string{"a", "b", "c"}
	for n := 0; ctx.Err() == nil; n++ {
		some := slices.Sorted(slices.Values(rand.Perm(len(keys))[:1+rand.IntN(len(keys))]))
		items := make([]roomdriver.Item, len(some))
		for i, k := range some {
			items[i].Key = keys[k]
		}
		links := make([]link, len(items))
		skipped, err := t.Transact(ctx, items, func(i int, found roomdriver.Found) roomdriver.Change {
			links[i] = link{key: items[i].Key, before: textOf(found.Record), sure: true}
			if rand.IntN(4) == 0 {
				return roomdriver.Change{}
			}
			links[i].after = fmt.Sprint(name, ".", n)
			return roomdriver.Change{Record: record(links[i].after)}
		})
		c.mu.Lock()
		if err != nil {
			c.fails++
		}
		if !errors.Is(err, driver.ErrUnavailable) {
			for i, l := range links {
				l.sure = err == nil
				if l.key != "" && l.before != l.after && !slices.Contains(skipped, i) {
					c.links = append(c.links, l)
				}
			}
		}
		c.mu.Unlock()
	}
}

// check reports updates that cannot have happened one after the other. Each record has at most
// one successor, and each record that was read was also written.
func (c *chain) check(t *testing.T) {
	t.Helper()
	written, read := make(map[link]bool), make(map[link]link)
	for _, l := range c.links {
		written[link{key: l.key, after: l.after}] = true
	}
	for _, l := range c.links {
		if l.before == "" {
			continue
		}
		at := link{key: l.key, before: l.before}
		if other, twice := read[at]; twice && l.sure && other.sure {
			t.Errorf("both %+v and %+v follow %q", other, l, l.before)
		}
		if l.sure || read[at] == (link{}) {
			read[at] = l
		}
		if !written[link{key: l.key, after: l.before}] {
			t.Errorf("%+v has read a record that no update wrote, or that was certainly not written", l)
		}
	}
}

// TestTransact_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote plays many processes that replace
// few records while their sessions are killed.
func TestTransact_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote(t *testing.T) {
	live.Test(t)
	server := postgrestest.Shared(t)
	serializable := server.URL() + "&create=true&options=" + url.QueryEscape("-c default_transaction_isolation=serializable")
	c := new(chain)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 4 {
		d := openURL(t, serializable)
		for j := range 4 {
			wg.Go(func() { c.work(ctx, d.table, fmt.Sprint(i, ".", j)) })
		}
	}
	boss := admin(t, server.URL())
	enough := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.links) >= 100 && c.fails > 0
	}
	least := 4 * time.Second
	if testing.Short() {
		least = 2 * time.Second
	}
	for start := time.Now(); time.Since(start) < least || time.Since(start) < time.Minute && !enough(); {
		exec(t, boss, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE pid <> pg_backend_pid() AND datname = current_database() AND backend_type = 'client backend' AND random() < 0.1`)
		time.Sleep(rand.N(100 * time.Millisecond))
	}
	cancel()
	wg.Wait()
	c.check(t)
	t.Logf("%d updates, %d failed calls", len(c.links), c.fails)
	if !enough() {
		t.Error("too little happened")
	}
}

func TestTransact_TheChainFindsALostUpdate(t *testing.T) {
	for name, links := range map[string][]link{
		"lost":     {{"a", "", "1", true}, {"a", "1", "2", true}, {"a", "1", "3", true}},
		"reverted": {{"a", "", "1", true}, {"a", "2", "3", true}},
	} {
		inner := new(testing.T)
		(&chain{links: links}).check(inner)
		if !inner.Failed() {
			t.Errorf("%s: not found", name)
		}
	}
}
