package play

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// Chain records updates that insert, replace and remove records of a table at random. Each record of
// a key is read by one update that certainly succeeds, at most.
type Chain struct {
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

// Work updates three keys until ctx ends. Names of workers differ.
func (c *Chain) Work(ctx context.Context, table roomdriver.Table, name string) {
	for n := 0; ctx.Err() == nil; n++ {
		l := link{key: fmt.Sprint("chain", rand.IntN(3))}
		err := table.Update(context.WithoutCancel(ctx), l.key, func(record []byte, _ time.Time) ([]byte, error) {
			if l.before, l.after = string(record), ""; rand.IntN(4) == 0 {
				return nil, nil
			}
			l.after = endless + fmt.Sprint(name, ".", n)
			return []byte(l.after), nil
		})
		if err != nil {
			time.Sleep(time.Millisecond) // the table may not be connected again yet
		}
		c.mu.Lock()
		if err != nil {
			c.fails++
		}
		if l.sure = err == nil; l.before != l.after && !errors.Is(err, driver.ErrUnavailable) {
			c.links = append(c.links, l)
		}
		c.mu.Unlock()
	}
}

// endless begins a record that no sweep removes.
const endless = "\x01\x7f\xff\xff\xff\xff\xff\xff\xff"

// Await waits for updates that may have succeeded, and updates that failed.
func (c *Chain) Await(t testing.TB, updates, failures int) {
	t.Helper()
	enough := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.links) >= updates && c.fails >= failures
	}
	for start := time.Now(); !enough(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("%d updates and %d failures, want %d and %d", len(c.links), c.fails, updates, failures)
		}
	}
}

// Judge reports updates that cannot have happened one after the other. It is called after all Work has
// ended.
func (c *Chain) Judge(t testing.TB) {
	t.Helper()
	written, read := make(map[link]bool), make(map[link]link)
	for _, l := range c.links {
		written[link{key: l.key, after: l.after}] = true
	}
	for _, l := range c.links {
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
