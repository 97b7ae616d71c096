package roomdriver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/marktest"
)

// errLost is the error of a connection that broke after a commit was sent.
var errLost = errors.New("connection lost")

// open returns a driver that is closed with the test. It sweeps only if an option turns
// sweeping on.
func open(t *testing.T, table roomdriver.Table, options ...roomdriver.Option) *roomdriver.Driver {
	t.Helper()
	d := roomdriver.New(table, append([]roomdriver.Option{roomdriver.WithSweep(0)}, options...)...)
	t.Cleanup(func() { noError(t, d.Close()) })
	return d
}

// request asks for the key "k".
func request(id string) driver.Request {
	return driver.Request{Key: "k", ID: id, TTL: time.Minute, ConfirmWindow: time.Second}
}

// shared asks for the key "k" as a reader.
func shared(id string) driver.Request {
	req := request(id)
	req.Mode = driver.Shared
	return req
}

var (
	acquire = ask.Acquire
	noError = ask.NoError
	renewed = ask.Renew
)

func release(t *testing.T, d driver.Driver, ref driver.Ref, want driver.State) {
	t.Helper()
	if reply, err := d.Release(t.Context(), ref); err != nil || reply.State != want {
		t.Fatalf("release %s: %+v, %v", ref.ID, reply, err)
	}
}

// mark sets the mark of a store.
func mark(t *testing.T, d *roomdriver.Driver, m driver.Mark) {
	t.Helper()
	noError(t, d.Mark(t.Context(), m, ""))
}

func watch(t *testing.T, d *roomdriver.Driver, f func(driver.Hint)) driver.Subscription {
	t.Helper()
	sub, err := d.Watch(f)
	noError(t, err)
	return sub
}

func TestAcquire_AnUnknownOutcomeIsPassedOnAndFoundAgain(t *testing.T) {
	for _, name := range []string{"update", "transaction"} {
		t.Run(name, func(t *testing.T) {
			rows := newRows()
			d := open(t, rows)
			rows.lose = errLost
			if name == "transaction" {
				d = open(t, &ledger{rows: rows, fails: errLost})
			}
			_, err := d.Acquire(t.Context(), request("a"))
			if !errors.Is(err, errLost) || errors.Is(err, driver.ErrUnavailable) {
				t.Fatalf("%v: want the table's error, which is not definite", err)
			}
			rows.lose = nil
			acquire(t, open(t, rows), request("a"), driver.Granted)
		})
	}
}

func TestRelease_HintsAreSentOnlyWhenItIsCertainlySaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := newRows()
		d := open(t, rows)
		var heard atomic.Int64
		sub := watch(t, d, func(driver.Hint) { heard.Add(1) })
		acquire(t, d, request("holder"), driver.Granted)
		waiter := request("waiter")
		waiter.TicketTTL, waiter.HintAddress = time.Minute, sub.Address()
		acquire(t, d, waiter, driver.Queued)
		synctest.Wait()
		heard.Store(0)
		rows.lose = errLost
		if _, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "holder"}); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := heard.Load(); n != 0 {
			t.Fatalf("%d hints although the outcome is unknown", n)
		}
		rows.lose = nil
		acquire(t, d, waiter, driver.Granted)
	})
}

func TestRenew_AThousandLeasesAreAFewTransactions(t *testing.T) {
	rows := newRows()
	table := &ledger{rows: rows, busy: func(key string) bool { return strings.HasSuffix(key, "7") }}
	d := open(t, table)
	var refs []driver.Ref
	for i := range 1000 {
		req := request(fmt.Sprint("lease-", i))
		req.Key = fmt.Sprint("key-", (i*7919)%500) // two to a key: the second is refused
		reply, err := d.Acquire(t.Context(), req)
		noError(t, err)
		if reply.State == driver.Granted {
			refs = append(refs, driver.Ref{Key: req.Key, ID: req.ID, TTL: time.Hour})
		}
	}
	renew := func(transactions int) {
		t.Helper()
		rows.calls = 0
		if renewed(t, d, driver.Granted, refs...); len(refs) != 500 || rows.calls != transactions {
			t.Fatalf("%d leases were renewed by %d transactions, want 500 by %d", len(refs), rows.calls, transactions)
		}
	}
	renew(2 + 50) // for the keys that were left out
	table.busy = nil
	renew(2)
}

func TestRecord_WhatCannotBeReadIsReportedAndStaysAsItIs(t *testing.T) {
	rows := newRows()
	d := open(t, rows)
	acquire(t, d, request("a"), driver.Granted)
	whole := string(rows.records["k"])
	for name, record := range map[string]string{
		"cut": whole[:len(whole)-3], "empty": "", "text": "hello", "version 9": "\x09" + whole[1:],
	} {
		t.Run(name, func(t *testing.T) {
			rows.records["k"] = []byte(record)
			check := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, driver.ErrMismatch) || !strings.Contains(err.Error(), `"k"`) {
					t.Errorf("%s: %v; want a mismatch that names the key", what, err)
				}
				if strings.HasPrefix(name, "version") && !strings.Contains(err.Error(), name) {
					t.Errorf("%s: %v; want the version", what, err)
				}
			}
			_, err := d.Acquire(t.Context(), request("b"))
			check("acquire", err)
			_, err = d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"})
			check("release", err)
			_, err = d.Inspect(t.Context(), "k")
			check("inspect", err)
			d.Renew(t.Context(), []driver.Ref{{Key: "k", ID: "a"}}, func(_ int, _ driver.Reply, err error) { check("renew", err) })
			if keys, _, err := d.List(t.Context(), "", ""); err != nil || len(keys) != 1 {
				t.Errorf("list: %q, %v; want the key", keys, err)
			}
			if got := string(rows.records["k"]); got != record {
				t.Errorf("it became %q", got)
			}
		})
	}
}

// sweeper is a table that implements Sweep.
type sweeper struct{ *rows }

func (t sweeper) Sweep(_ context.Context, limit int) (removed int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, record := range t.records {
		if end, forever, err := roomdriver.End(record); removed < limit && err == nil && !forever && !end.After(t.now()) {
			delete(t.records, key)
			removed++
		}
	}
	return removed, nil
}

// slowSweeper has too little time for all records.
type slowSweeper struct{ sweeper }

func (t slowSweeper) Sweep(ctx context.Context, _ int) (removed int, err error) {
	if removed, err = t.sweeper.Sweep(ctx, 50); removed < 50 {
		return removed, err
	}
	<-ctx.Done()
	return removed, ctx.Err()
}

func TestSweep_NamesUsedOnceLeaveNothing(t *testing.T) {
	for name, table := range map[string]func(*rows) roomdriver.Table{
		"by the driver": func(r *rows) roomdriver.Table { return r },
		"by the table":  func(r *rows) roomdriver.Table { return sweeper{r} },
		"bit by bit":    func(r *rows) roomdriver.Table { return slowSweeper{sweeper{r}} },
		"with notes":    func(r *rows) roomdriver.Table { return &ledger{rows: r} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rows := newRows()
				d := open(t, table(rows), roomdriver.WithSweep(time.Minute))
				mark(t, d, driver.Mark{})
				last := make(map[string]int64)
				for i := range 600 {
					req := request("lease")
					req.Key, req.SingleUseID, req.TTL = fmt.Sprint("order/", i), true, 10*time.Second
					last[req.Key] = acquire(t, d, req, driver.Granted).Token
					if i%2 == 0 { // the other leases expire
						release(t, d, driver.Ref{Key: req.Key, ID: req.ID, SingleUseID: true, RejectIDFor: time.Minute}, driver.Released)
					}
				}
				if rows.size() < 600 {
					t.Fatalf("%d records: want the tokens to be remembered", rows.size())
				}
				time.Sleep(65 * time.Minute)
				if n := rows.size(); n != 1 {
					t.Fatalf("%d records are left, want the mark", n)
				}
				for key, token := range last {
					req := request("again")
					req.Key = key
					if reply := acquire(t, d, req, driver.Granted); reply.Token <= token {
						t.Fatalf("token %d follows %d, which was forgotten", reply.Token, token)
					}
				}
			})
		})
	}
}

func TestOnce_ReleasedIdsDoNotMakeTheRecordGrow(t *testing.T) {
	rows := newRows()
	d := open(t, &ledger{rows: rows})
	for i := range 2000 {
		req := request(fmt.Sprint("lease-", i))
		req.SingleUseID = true
		acquire(t, d, req, driver.Granted)
		release(t, d, driver.Ref{Key: "k", ID: req.ID, SingleUseID: true, RejectIDFor: time.Minute}, driver.Released)
	}
	if n := len(rows.records["k"]); n > 100 {
		t.Errorf("the record has %d bytes", n)
	}
	for _, id := range []string{"lease-0", "lease-1999"} {
		req := request(id)
		req.SingleUseID = true
		if reply := acquire(t, d, req, driver.Gone); !reply.Replayed {
			t.Errorf("%s: %+v; want Replayed", id, reply)
		}
	}
}

func TestGuard_AStoreThatMayHaveForgottenRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := newRows()
		d := open(t, rows)
		guarded := request("a")
		guarded.Guard = true
		refused := func(when string) {
			t.Helper()
			if _, err := d.Acquire(t.Context(), guarded); !errors.Is(err, driver.ErrAmnesia) {
				t.Fatalf("%s: %v, want driver.ErrAmnesia", when, err)
			}
		}
		refused("without a mark")
		mark(t, d, driver.Mark{Quarantine: time.Minute})
		refused("in quarantine")
		time.Sleep(time.Minute + time.Second)
		acquire(t, d, guarded, driver.Granted)
	})
}

// lying is a table with an Update that reports success without calling the function.
type lying struct{ *rows }

func (lying) Update(context.Context, string, func([]byte, time.Time) ([]byte, error)) error {
	return nil
}

// idle is a table with transactions that leave out all items.
type idle struct{ *ledger }

func (idle) Transact(context.Context, []roomdriver.Item, func(int, roomdriver.Found) roomdriver.Change) ([]int, error) {
	return []int{0}, nil
}

func TestUpdate_ATableThatDoesNothingIsFoundOut(t *testing.T) {
	for name, table := range map[string]roomdriver.Table{"update": lying{newRows()}, "transaction": idle{&ledger{rows: newRows()}}} {
		reply, err := open(t, table).Acquire(t.Context(), request("a"))
		if err == nil || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: %+v, %v; want an error that is not definite", name, reply, err)
		}
	}
}

func TestClock_OneThatCountsFromElsewhereIsRefused(t *testing.T) {
	rows := newRows()
	rows.skew = -time.Since(time.Unix(-5, 0))
	_, err := open(t, rows).Acquire(t.Context(), request("a"))
	if !errors.Is(err, driver.ErrUnavailable) || rows.size() != 0 {
		t.Errorf("%v, want driver.ErrUnavailable and no record", err)
	}
}

func TestNotify_MessagesAreShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := newRows()
		longest := 0
		d, other := open(t, rows), open(t, measuring{rows, &longest})
		var got driver.Hint
		sub := watch(t, d, func(h driver.Hint) { got = h })
		req := request("a")
		req.Key = strings.Repeat("\"<", 256)
		acquire(t, d, req, driver.Granted)
		_, err := other.Break(t.Context(), req.Key, "a", strings.Repeat("ü", 5000))
		noError(t, err)
		synctest.Wait()
		if !strings.HasPrefix(got.Reason, "üü") || longest > 2048 {
			t.Errorf("a long reason: received %q in a message of %d bytes", got.Reason, longest)
		}
		places := shared("a")
		places.Weight, places.Limit = driver.MaxNumbered, driver.MaxNumbered
		acquire(t, other, places, driver.Granted)
		places.ID, places.TicketTTL, places.HintAddress = "b", places.TTL, sub.Address()
		acquire(t, d, places, driver.Queued)
		release(t, other, driver.Ref{Key: "k", ID: "a"}, driver.Released)
		synctest.Wait()
		if len(got.Places.Numbers()) != driver.MaxNumbered || longest > 5000 {
			t.Errorf("many places: received %d in a message of %d bytes", len(got.Places.Numbers()), longest)
		}
	})
}

func TestBreak_WhoeverBreaksHearsItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, newRows())
		var heard [2]atomic.Int64
		for i := range heard {
			watch(t, d, func(driver.Hint) { heard[i].Add(1) })
		}
		acquire(t, d, request("a"), driver.Granted)
		for range 2 { // the second time the lease is gone
			_, err := d.Break(t.Context(), "k", "a", "why")
			noError(t, err)
			synctest.Wait()
			for i := range heard {
				if n := heard[i].Load(); n != 1 {
					t.Errorf("subscription %d received %d hints, want 1", i, n)
				}
			}
		}
	})
}

// measuring is a table that measures messages.
type measuring struct {
	*rows
	longest *int
}

func (t measuring) Notify(ctx context.Context, messages []roomdriver.Message) error {
	for _, m := range messages {
		*t.longest = max(*t.longest, len(m.Body))
	}
	return t.rows.Notify(ctx, messages)
}

func TestLook_ShowsWhatARecordTells(t *testing.T) {
	rows := newRows()
	d := open(t, rows)
	token := acquire(t, d, request("a"), driver.Granted).Token
	snap, err := roomdriver.Look(rows.records["k"], "k", time.Now())
	if err != nil || len(snap.Holders) != 1 || snap.Holders[0].ID != "a" || snap.Token != token {
		t.Errorf("%+v, %v", snap, err)
	}
	if snap, err = roomdriver.Look(nil, "k", time.Now()); err != nil || len(snap.Holders) != 0 {
		t.Errorf("no record: %+v, %v", snap, err)
	}
	end, forever, err := roomdriver.End(rows.records["k"])
	if want := time.UnixMicro(token).Add(time.Hour); err != nil || forever || end.Before(want) || end.After(want.Add(time.Second)) {
		t.Errorf("the record ends at %v, %v, want about %v", end, err, want)
	}
}

func TestMark_HR_A8_IsSetOnlyWhileTheStoreIsReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := newRows()
		marktest.Reservations(t, open(t, rows), time.Sleep, func() { clear(rows.records) })
	})
}

// guarded records Change.Enters of each change, and sets Found.Shut if shut is set.
type guarded struct {
	*ledger
	shut    bool
	takes   time.Duration
	entered []bool
}

func (t *guarded) Transact(ctx context.Context, items []roomdriver.Item, f func(int, roomdriver.Found) roomdriver.Change) ([]int, error) {
	time.Sleep(t.takes)
	return t.ledger.Transact(ctx, items, func(i int, found roomdriver.Found) roomdriver.Change {
		found.Shut = t.shut
		change := f(i, found)
		t.entered = append(t.entered, change.Enters)
		return change
	})
}

func TestTransact_TellsWhoEntersAndLetsNobodyInWhereItIsShut(t *testing.T) {
	table := &guarded{ledger: &ledger{rows: newRows()}}
	d := open(t, table)
	acquire(t, d, shared("a"), driver.Granted)
	acquire(t, d, shared("a"), driver.Granted) // the same again
	acquire(t, d, shared("b"), driver.Granted) // joins
	acquire(t, d, request("c"), driver.Busy)
	if want := []bool{true, false, false, false}; !slices.Equal(table.entered, want) {
		t.Errorf("%v, want %v", table.entered, want)
	}
	table.shut = true
	key := request("a").Key
	release(t, d, driver.Ref{Key: key, ID: "a"}, driver.Released)
	release(t, d, driver.Ref{Key: key, ID: "b"}, driver.Released)
	if reply := acquire(t, d, request("c"), driver.Busy); reply.RetryAfter <= 0 || reply.RetryAfter > time.Second {
		t.Errorf("%+v", reply)
	}
}

// After a downgrade other readers may join, so a downgrade counts as an entry.
func TestTransact_KeepsAWriterAWriterWhereItIsShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &guarded{ledger: &ledger{rows: newRows()}}
		d := open(t, table)
		lower := shared("a")
		lower.Downgrade = true
		acquire(t, d, request("a"), driver.Granted)
		table.shut, table.takes, table.entered = true, time.Second, nil
		var calls ordered
		calls.begin(func() { acquire(t, d, shared("r"), driver.Busy) })
		calls.begin(func() {
			if reply, err := d.Acquire(t.Context(), lower); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("%+v, %v", reply, err)
			}
		})
		calls.begin(func() { // in one update with the downgrade, which alone fails
			queue := shared("r")
			queue.TicketTTL = time.Hour
			acquire(t, d, queue, driver.Queued)
		})
		calls.Wait()
		if want := []bool{false, false}; !slices.Equal(table.entered, want) {
			t.Errorf("%v, want %v: no request was granted", table.entered, want)
		}
		snap, err := d.Inspect(t.Context(), "k")
		if err != nil || len(snap.Holders) != 1 || snap.Holders[0].Mode != driver.Exclusive {
			t.Errorf("%+v, %v; want the writer", snap.Holders, err)
		}
		time.Sleep(time.Second)
		table.shut, table.entered = false, nil
		acquire(t, d, lower, driver.Granted)
		acquire(t, d, lower, driver.Granted) // the same again
		acquire(t, d, shared("r"), driver.Granted)
		if want := []bool{true, false, false}; !slices.Equal(table.entered, want) {
			t.Errorf("%v, want %v", table.entered, want)
		}
		// Requests that are not a downgrade get their usual answers.
		release(t, d, driver.Ref{Key: "k", ID: "a"}, driver.Released)
		release(t, d, driver.Ref{Key: "k", ID: "r"}, driver.Released)
		brief := request("b")
		brief.TTL = time.Minute
		acquire(t, d, brief, driver.Granted)
		table.shut = true
		lower.ID = "b"
		resize := shared("b")
		resize.Resize = true
		acquire(t, d, resize, driver.Gone)
		time.Sleep(time.Minute)
		acquire(t, d, lower, driver.Gone)
	})
}
