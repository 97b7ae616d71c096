package overview

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
)

// counted is a store that counts its requests, and fails on demand.
type counted struct {
	*memdriver.Driver
	pages int // of its list that are empty before each that is not

	mu    sync.Mutex
	asked map[string]int // by name; "" for lists
	fail  func(context.Context) error
}

func (c *counted) note(ctx context.Context, name string) error {
	c.mu.Lock()
	c.asked[name]++
	fail := c.fail
	c.mu.Unlock()
	if fail != nil {
		return fail(ctx)
	}
	return nil
}

func (c *counted) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, times := range c.asked {
		n += times
	}
	return n
}

func (c *counted) fails(f func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = f
}

func (c *counted) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	if err := c.note(ctx, key); err != nil {
		return driver.Snapshot{}, err
	}
	return c.Driver.Inspect(ctx, key)
}

func (c *counted) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	return c.Inspect(ctx, key)
}

// List returns some empty pages, and names twice.
func (c *counted) List(ctx context.Context, prefix, cursor string) ([]string, string, error) {
	if err := c.note(ctx, ""); err != nil {
		return nil, "", err
	}
	gap := len(cursor) - len(strings.TrimLeft(cursor, "+"))
	if gap < c.pages {
		return nil, "+" + cursor, nil
	}
	keys, next, err := c.Driver.List(ctx, prefix, cursor[gap:])
	if last := cursor[gap:]; last != "" {
		keys = append(keys, last, last) // as a scan of Redis does
	}
	return keys, next, err
}

// stage runs play with the overview of a store that has n locks.
func stage(t *testing.T, n int, play func(t *testing.T, o *Overview, store *counted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Driver: memdriver.New(), asked: make(map[string]int)}
		defer store.Close()
		for i := range n {
			ask.Acquire(t, store, driver.Request{Key: fmt.Sprintf("k%04d", i), ID: "a", Owner: "w", TTL: 24 * time.Hour, Since: time.Now()}, driver.Granted)
		}
		log := new(bytes.Buffer)
		var requests sync.WaitGroup
		play(t, New(store, 5*time.Second, slog.New(slog.NewTextHandler(log, nil)), func(f func()) bool {
			requests.Go(f)
			return true
		}), store)
		requests.Wait()
		if n := strings.Count(log.String(), "a look at the store failed"); n > 1 {
			t.Errorf("logged %d times in some seconds", n)
		}
	})
}

func start(f func()) bool {
	go f()
	return true
}

func everything(string) bool { return true }

// view calls Locks as the service does.
func (o *Overview) view(t *testing.T, cursor string) (View, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	return o.Locks(ctx, "", "", cursor, everything)
}

// shows returns the rows of the first view, which must be n.
func (o *Overview) shows(t *testing.T, n int) []Row {
	t.Helper()
	v, err := o.view(t, "")
	if err != nil || len(v.Rows) != n {
		t.Fatalf("%+v, %v; want %d rows", v, err, n)
	}
	return v.Rows
}

func TestLocks_CursorsLeadToEveryLock(t *testing.T) {
	stage(t, 600, func(t *testing.T, o *Overview, store *counted) {
		for _, row := range []struct {
			prefix string
			may    func(string) bool
			empty  int
			want   int
		}{
			{"", everything, 0, 600},
			{"k01", everything, 0, 100},
			{"", everything, 3, 600},
			{"", func(key string) bool { return key < "k0010" || key > "k0590" }, 0, 19},
			{"", func(key string) bool { return false }, 50, 0},
		} {
			store.pages = row.empty
			seen := make(map[string]int)
			cursor, views := "", 0
			for {
				v, err := o.Locks(t.Context(), "", row.prefix, cursor, row.may)
				if err != nil || len(v.Rows) > MaxRows {
					t.Fatalf("%d rows, %v", len(v.Rows), err)
				}
				for _, r := range v.Rows {
					if seen[r.Key]++; !r.Looked || r.Holders[0].Owner != "w" || !row.may(r.Key) {
						t.Fatalf("%+v", r)
					}
				}
				time.Sleep(time.Minute) // until all answers of the store are dropped
				if views++; v.Cursor == "" {
					break
				}
				cursor = v.Cursor
			}
			if len(seen) != row.want || views > row.want/20+20 {
				t.Errorf("%q, %d empty pages: %d locks in %d views", row.prefix, row.empty, len(seen), views)
			}
			if n := len(o.locks.all) + len(o.lists.all); n > 2*MaxRows+maxLists {
				t.Errorf("%d answers are kept", n)
			}
		}
	})
}

func TestLocks_RowsAreCutAndCounted(t *testing.T) {
	stage(t, 0, func(t *testing.T, o *Overview, store *counted) {
		for i := range 300 {
			req := driver.Request{Key: "gpu", ID: fmt.Sprint("h", i), Mode: driver.Shared, Limit: 600, Weight: 2, TTL: time.Hour, Since: time.Now().Add(time.Duration(-i) * time.Second)}
			if i == 299 {
				req.Weight = 1
			}
			ask.Acquire(t, store, req, driver.Granted)
		}
		for i := range 250 {
			ask.Acquire(t, store, driver.Request{Key: "gpu", ID: fmt.Sprint("w", i), Mode: driver.Shared, Limit: 600, Weight: 2, TTL: time.Hour, TicketTTL: time.Hour}, driver.Queued)
		}
		one, err := o.Lock(t.Context(), "gpu")
		if err != nil {
			t.Fatal(err)
		}
		if one.Held != 300 || one.Used != 599 || one.Queue != 250 || len(one.Holders) != maxShown || len(one.Waiters) != maxShown {
			t.Errorf("%d leases, %d places, %d wait; shown are %d and %d", one.Held, one.Used, one.Queue, len(one.Holders), len(one.Waiters))
		}
		time.Sleep(300 * time.Millisecond)
		r := o.shows(t, 1)[0]
		if r.Held != 300 || len(r.Holders) != rowHolders || r.Holders[0].LeaseID != "h299" || len(r.Waiters) != 1 || r.Waiters[0].LeaseID != "w0" || r.Ago != 300 {
			t.Errorf("%+v", r)
		}
	})
}

func TestLocks_ALockThatHasEndedIsLeftOut(t *testing.T) {
	stage(t, 2, func(t *testing.T, o *Overview, store *counted) {
		o.shows(t, 2)
		ask.Release(t, store, "k0000", "a")
		time.Sleep(1500 * time.Millisecond) // the list with its name is still fresh
		if rows := o.shows(t, 1); rows[0].Key != "k0001" {
			t.Errorf("%+v", rows)
		}
		if r, err := o.Lock(t.Context(), "k0000"); err != nil || r.State != "free" {
			t.Errorf("%+v", r)
		}
	})
}

// backwards is a store whose list begins with the last names, a page each, and never ends.
type backwards struct{ *memdriver.Driver }

func (backwards) List(_ context.Context, _, cursor string) ([]string, string, error) {
	if len(cursor) < 3 {
		return []string{fmt.Sprint("k000", 2-len(cursor))}, cursor + "+", nil
	}
	return nil, cursor + "+", nil
}

func TestLocks_AViewReadsAFewPagesOfAListInAnyOrder(t *testing.T) {
	stage(t, 3, func(t *testing.T, _ *Overview, store *counted) {
		o := New(backwards{store.Driver}, time.Second, slog.New(slog.DiscardHandler), start)
		v, err := o.view(t, "")
		if err != nil || len(v.Rows) != 3 || v.Rows[0].Key != "k0002" || v.Rows[2].Key != "k0000" || len(o.lists.all) != maxLists || o.unseal(v.Cursor, "", "") != (place{at: strings.Repeat("+", maxLists)}) {
			t.Errorf("%d rows of %d pages, %q, %v", len(v.Rows), len(o.lists.all), v.Cursor, err)
		}
	})
}

// TestOverview_APageThatLeavesEndsNoRequest: other pages wait for the answer.
func TestOverview_APageThatLeavesEndsNoRequest(t *testing.T) {
	stage(t, 1, func(t *testing.T, o *Overview, store *counted) {
		store.fails(func(ctx context.Context) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		ctx, leave := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer leave()
		go func() { _, _ = o.Lock(ctx, "k0000") }()
		synctest.Wait()
		if r, err := o.Lock(t.Context(), "k0000"); err != nil || r.Failed || store.total() != 1 {
			t.Errorf("%+v after %d requests", r, store.total())
		}
	})
}

// TestOverview_PagesAskNoMoreThanTheBound: pages with the same locks cause as many requests as one
// page. The state of all locks that are shown is renewed all the time.
func TestOverview_PagesAskNoMoreThanTheBound(t *testing.T) {
	for _, row := range []struct{ pages, different, most int }{
		{1, 1, 53 * 20}, {10, 1, 53 * 20}, {10, 10, RequestsPerSecond*20 + burst},
	} {
		stage(t, row.different*MaxRows, func(t *testing.T, o *Overview, store *counted) {
			cursors := []string{""}
			for next := (place{}); len(cursors) < row.different; {
				var err error
				if _, next, err = o.names(t.Context(), "", next, everything); err != nil {
					t.Fatal(err)
				}
				cursors = append(cursors, o.seal(next, "", ""))
			}
			time.Sleep(time.Minute)
			before, end := store.total(), time.Now().Add(20*time.Second)
			var pages sync.WaitGroup
			for i := range row.pages {
				pages.Go(func() {
					for time.Now().Before(end) {
						if _, err := o.view(t, cursors[i%len(cursors)]); err != nil {
							t.Error(err)
						}
						_, _ = o.Lock(t.Context(), "k0000")
						o.Vitals(t.Context())
						time.Sleep(time.Second)
					}
				})
			}
			pages.Wait()
			late := time.Since(end) // the time of the last answers
			if n := store.total() - before; n > row.most+int(late)/int(time.Second/RequestsPerSecond) {
				t.Errorf("%d pages, %d of them different: %d requests in 20 s and %v", row.pages, row.different, n, late)
			}
			for i := range row.different * MaxRows {
				if key := fmt.Sprintf("k%04d", i); store.asked[key] < 5 {
					t.Errorf("%+v: %s is looked at %d times in 20 s", row, key, store.asked[key])
				}
			}
		})
	}
}

// TestOverview_AFailureFailsAlone: a request that fails, hangs or panics is reported, and the
// next request shows the lock.
func TestOverview_AFailureFailsAlone(t *testing.T) {
	for name, fail := range map[string]func(context.Context) error{
		"refused": func(context.Context) error { return driver.ErrUnavailable },
		"hung": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"a defect": func(context.Context) error { panic("defect") },
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 3, func(t *testing.T, o *Overview, store *counted) {
				o.shows(t, 3)
				time.Sleep(time.Second + time.Millisecond)
				store.fails(fail)
				var all sync.WaitGroup
				for range 3 { // the page that asks, and pages that wait for the same answer
					all.Go(func() {
						r, err := o.Lock(t.Context(), "k0000")
						if errors.Is(err, ErrDefect) != (name == "a defect") || err == nil && (!r.Failed || r.Held != 1) {
							t.Errorf("%+v, %v", r, err)
						}
						if v := o.Vitals(t.Context()); !v.Failing {
							t.Errorf("%+v", v)
						}
					})
				}
				all.Wait()
				before, most := store.total(), 1
				if name == "a defect" { // is one of each lock
					most = 3
				}
				if v, err := o.view(t, ""); err == nil && len(v.Rows) != 3 || store.total() > before+most {
					t.Errorf("%+v, %v after %d requests", v, err, store.total()-before)
				}
				time.Sleep(6 * time.Second)
				if _, err := o.view(t, ""); err == nil {
					t.Error("locks are listed that cannot be")
				}
				store.fails(nil)
				time.Sleep(6 * time.Second)
				if rows := o.shows(t, 3); rows[0].Failed || o.Vitals(t.Context()).Failing {
					t.Errorf("%+v", rows)
				}
			})
		})
	}
}
