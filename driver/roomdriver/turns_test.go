package roomdriver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// slow is a table with updates that take a second, or until hung is closed.
type slow struct {
	*rows
	hung  chan struct{}
	asked func(context.Context) // is called at the begin of an update, unless it is nil
}

func (t slow) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	if t.asked != nil {
		t.asked(ctx)
	}
	if t.hung == nil {
		time.Sleep(time.Second)
		return t.rows.Update(ctx, key, f)
	}
	select {
	case <-t.hung:
		return t.rows.Update(ctx, key, f)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ordered are calls at the same time that begin in order.
type ordered struct{ sync.WaitGroup }

// begin begins a call, and returns when it waits for something.
func (c *ordered) begin(call func()) {
	c.Go(call)
	synctest.Wait()
}

func acquireWithin(t *testing.T, d driver.Driver, req driver.Request, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := d.Acquire(ctx, req)
	return err
}

func TestTurns_CallsOfOneKeyAreMadeTogetherAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := slow{rows: newRows()}
		d := open(t, table)
		start := time.Now()
		acquire(t, d, request("holder"), driver.Granted)
		var calls ordered
		for i := range 100 {
			calls.begin(func() {
				req := request(fmt.Sprint("w", i))
				req.TicketTTL = time.Hour
				if reply := acquire(t, d, req, driver.Queued); reply.Position != i+1 {
					t.Errorf("%d: %+v", i, reply)
				}
			})
		}
		calls.Wait()
		if took := time.Since(start); took != 3*time.Second || table.calls != 3 {
			t.Errorf("%v, %d updates; want one for the holder, one for the first waiter, and one for the rest", took, table.calls)
		}
	})
}

func TestTurns_ARefusalOfOneIsNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, slow{rows: newRows()})
		var calls ordered
		for i := range 6 {
			calls.begin(func() {
				req := shared(fmt.Sprint(i))
				req.Limit = 10 - 5*(i%2)
				if _, err := d.Acquire(t.Context(), req); errors.Is(err, driver.ErrMismatch) != (req.Limit == 5) {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		calls.Wait()
	})
}

func TestTurns_WhoeverGivesUpIsToldWhetherItWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := slow{rows: newRows(), hung: make(chan struct{})}
		d := open(t, table)
		var calls ordered
		ask := func(id string, patience time.Duration) *error {
			err := new(error)
			calls.begin(func() { *err = acquireWithin(t, d, request(id), patience) })
			return err
		}
		first := ask("first", 2*time.Second) // alone
		waiting := ask("waiting", time.Second)
		under := ask("under way", 4*time.Second) // together with the next
		last := ask("last", time.Hour)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if err := *waiting; !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v; it was never asked", err)
		}
		for _, err := range []error{*first, *under} {
			if errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v; the outcome must be unknown", err)
			}
		}
		close(table.hung)
		calls.Wait()
		if *last != nil {
			t.Error(*last)
		}
		if snap, err := d.Inspect(t.Context(), "k"); err != nil || len(snap.Holders) != 1 || snap.Holders[0].ID != "under way" {
			t.Errorf("%+v, %v", snap, err)
		}
	})
}

// The driver still carries out a call that was given up. Its caller may change the labels then.
func TestTurns_ACallThatWasGivenUpKeepsItsLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, slow{rows: newRows()})
		var calls ordered
		ask := func(req driver.Request, patience time.Duration) {
			calls.begin(func() {
				if err := acquireWithin(t, d, req, patience); errors.Is(err, driver.ErrUnavailable) {
					t.Error(err)
				}
				if req.Labels != nil {
					req.Labels["job"] = "the next"
				}
			})
		}
		ask(driver.Request{Key: "k", ID: "first", TTL: time.Nanosecond}, time.Hour)
		mine := request("mine")
		mine.Labels = map[string]string{"job": "this"}
		ask(mine, 1500*time.Millisecond) // while it is made, together with the next
		ask(request("last"), time.Hour)
		calls.Wait()
		snap, err := d.Inspect(t.Context(), "k")
		if err != nil || len(snap.Holders) != 1 || snap.Holders[0].Labels["job"] != "this" {
			t.Errorf("%+v, %v", snap, err)
		}
	})
}

// closable is a table that must not be used after its Close.
type closable struct {
	slow
	closed *bool
}

func (t closable) Close() error {
	*t.closed = true
	return t.slow.Close()
}

func TestTurns_NoneIsMadeAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := false
		d := open(t, closable{slow{rows: newRows(), asked: func(context.Context) {
			if closed {
				t.Error("a call of a table that was closed")
			}
		}}, &closed})
		errs := make([]error, 3)
		var calls ordered
		for i := range errs {
			calls.begin(func() { _, errs[i] = d.Acquire(t.Context(), request(fmt.Sprint(i))) })
		}
		if err := d.Close(); err != nil { // while the first is made
			t.Error(err)
		}
		calls.Wait()
		for i, err := range errs[1:] {
			if !errors.Is(err, driver.ErrClosed) {
				t.Errorf("call %d: %v", i+1, err)
			}
		}
	})
}

// callerKey is the key of the caller's name in a context.
type callerKey struct{}

// A table may serve releases first. An update for a release and other calls counts as a
// release, too.
func TestTurns_AReleaseSpeaksForThoseThatAreMadeWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var of []any
		d := open(t, slow{rows: newRows(), asked: func(ctx context.Context) { of = append(of, ctx.Value(callerKey{})) }})
		by := func(name string) context.Context { return context.WithValue(t.Context(), callerKey{}, name) }
		var calls ordered
		ask := func(name string) {
			calls.begin(func() {
				if _, err := d.Acquire(by(name), request(name)); err != nil {
					t.Error(err)
				}
			})
		}
		ask("first")
		ask("second")
		calls.begin(func() {
			if _, err := d.Release(by("release"), driver.Ref{Key: "k", ID: "first"}); err != nil {
				t.Error(err)
			}
		})
		ask("last")
		calls.Wait()
		if got := fmt.Sprint(of); got != "[first release]" {
			t.Errorf("updates by %s", got)
		}
	})
}

func TestTurns_AGroupForWhichNobodyWaitsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, slow{rows: newRows(), hung: make(chan struct{})}) // never closed
		var calls ordered
		for i := range 3 {
			calls.begin(func() { _ = acquireWithin(t, d, request(fmt.Sprint(i)), time.Duration(i+1)*time.Second) })
		}
		calls.Wait()
	})
}

func TestExchange_AKnownRecordNeedsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := exchanging{&ledger{rows: newRows(), counts: true}}
		d, other := open(t, table), open(t, table)
		requests := func(want int, what string, f func()) {
			t.Helper()
			table.calls = 0
			if f(); table.calls != want {
				t.Errorf("%s: %d requests, want %d", what, table.calls, want)
			}
		}
		requests(2, "an unknown name", func() { acquire(t, d, request("a"), driver.Granted) })
		requests(1, "its release", func() { release(t, d, driver.Ref{Key: "k", ID: "a"}, driver.Released) })
		requests(1, "the next acquire", func() { acquire(t, d, request("b"), driver.Granted) })
		requests(1, "a renewal", func() {
			d.Renew(t.Context(), []driver.Ref{{Key: "k", ID: "b", TTL: time.Hour}}, func(int, driver.Reply, error) {})
		})
		requests(1, "a refusal", func() { acquire(t, d, request("c"), driver.Busy) })
		requests(1, "a refusal of another process", func() { acquire(t, other, request("c"), driver.Busy) })
		requests(1, "its release", func() { release(t, d, driver.Ref{Key: "k", ID: "b"}, driver.Released) })
		requests(1, "a grant to another process", func() { acquire(t, other, request("d"), driver.Granted) })
		requests(1, "a wrong guess, answered with the record", func() { acquire(t, d, request("e"), driver.Busy) })
		fresh := request("f")
		fresh.Key = "fresh"
		requests(1, "another unknown name", func() { acquire(t, d, fresh, driver.Granted) })
		requests(1, "its release", func() { release(t, d, driver.Ref{Key: "fresh", ID: "f"}, driver.Released) })
		time.Sleep(time.Minute + 10*time.Millisecond) // the estimate of the clock has prolonged the lease
		requests(2, "a clock that was not read for long", func() { acquire(t, d, request("e"), driver.Granted) })
	})
}

// The clock has old readings, steps and lag. A lease still lives for at least its TTL from
// the call, and tokens rise.
func TestExchange_NeverShortensALeaseByAGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := exchanging{&ledger{rows: newRows(), counts: true}}
		d := open(t, table)
		const ttl = 500 * time.Millisecond
		last, steps := int64(0), 0
		for i := range 2000 {
			time.Sleep(time.Duration(i%97) * 37 * time.Microsecond)
			if i%50 == 49 {
				table.skew += time.Duration(i%7-3) * 40 * time.Millisecond // steps of both directions
			}
			req := request(fmt.Sprint(i))
			req.TTL = ttl
			called := table.now()
			reply, err := d.Acquire(t.Context(), req)
			if err != nil && !errors.Is(err, driver.ErrUnavailable) { // the clock was stepped: unknown
				steps++
				reply = acquire(t, d, req, driver.Granted)
			} else if err != nil {
				t.Fatal(err)
			}
			if reply.State != driver.Granted || reply.Token <= last {
				t.Fatalf("%+v after %d", reply, last)
			}
			last = reply.Token
			snap, err := roomdriver.Look(table.records["k"], "k", called)
			if err != nil || len(snap.Holders) != 1 {
				t.Fatalf("%+v, %v", snap, err)
			}
			if lives := snap.Holders[0].Remaining; lives < ttl-time.Millisecond || lives > ttl+25*time.Millisecond {
				t.Fatalf("call %d: the lease lives for %v", i, lives)
			}
			release(t, d, driver.Ref{Key: "k", ID: req.ID}, driver.Released)
		}
		if steps == 0 {
			t.Error("no step was noticed by a change that was made")
		}
	})
}
