package roomdriver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// guardedRequest returns a request for k, as a quorum sends it.
func guardedRequest(id string) driver.Request {
	return driver.Request{Key: "k", ID: id, TTL: time.Hour, Guard: true}
}

// forEachKind runs f on tables of every kind that have a mark.
func forEachKind(t *testing.T, f func(t *testing.T, kind string, r *rows, another func() *roomdriver.Driver)) {
	for _, kind := range kinds {
		for access := 1; access <= 10; access++ {
			synctest.Test(t, func(t *testing.T) {
				r := newRows()
				another := func() *roomdriver.Driver { return open(t, kind.table(r), kind.options...) }
				mark(t, another(), driver.Mark{Name: "m"})
				r.after = access
				f(t, kind.name, r, another)
			})
		}
	}
}

// A request with Guard takes several accesses to the table: of the lock, of the mark, and
// of the lock again. Wherever between them the table loses its data, it keeps nothing that
// lets a later request pass without a mark.
func TestGuard_TableThatLosesItsDataWithinARequestRefusesTheNext(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind string, r *rows, another func() *roomdriver.Driver) {
		d, access := another(), r.after
		r.event = func() { clear(r.records) }
		if _, err := d.Acquire(t.Context(), guardedRequest("x")); err != nil && !errors.Is(err, driver.ErrAmnesia) {
			t.Errorf("%s: data lost after %d accesses: %v, want %v or none", kind, access, err, driver.ErrAmnesia)
		}
		if r.after > 0 {
			r.after = 0
			clear(r.records)
		}
		for _, id := range []string{"x", "y"} {
			if reply, err := d.Acquire(t.Context(), guardedRequest(id)); !errors.Is(err, driver.ErrAmnesia) {
				t.Errorf("%s: data lost after %d accesses: the next request of %s got %v, %v; want %v", kind, access, id, reply.State, err, driver.ErrAmnesia)
			}
		}
	})
}

// First requests of several processes pass at the same time, also if a sweep
// removes a record in between.
func TestGuard_ProcessesThatAskFirstDoNotRefuseEachOther(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind string, r *rows, another func() *roomdriver.Driver) {
		x, y, access := another(), another(), r.after
		r.event = func() {
			if reply, err := y.Acquire(t.Context(), guardedRequest("y")); err != nil {
				t.Errorf("%s: y, after %d accesses of x: %v", kind, access, err)
			} else if reply.State == driver.Granted {
				release(t, y, driver.Ref{Key: "k", ID: "y"}, driver.Released)
				delete(r.records, "k") // as a sweep does, when the token may be forgotten
			}
		}
		if reply, err := x.Acquire(t.Context(), guardedRequest("x")); err != nil || reply.State != driver.Granted || reply.Replayed {
			t.Errorf("%s: x, with y after %d accesses: %+v, %v; want a first grant", kind, access, reply, err)
		}
		release(t, x, driver.Ref{Key: "k", ID: "x"}, driver.Released)
	})
}

// A first request asks for the lock, looks at the mark, and asks again, also if other
// requests that do not enter come in between. The next request costs as much
// as one without Guard.
func TestGuard_FirstRequestCostsThreeUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		x, y := open(t, r, roomdriver.WithMemory(0)), open(t, r)
		mark(t, x, driver.Mark{Name: "m"})
		r.after, r.event = 2, func() {
			ctx, cancel := context.WithCancel(t.Context())
			r.after, r.event = 1, cancel
			if reply, err := y.Acquire(ctx, guardedRequest("y")); err == nil {
				t.Errorf("%v after the context has ended", reply.State)
			}
			resize := driver.Request{Key: "k", ID: "y", TTL: time.Hour, Mode: driver.Shared, Limit: 2, Resize: true}
			if reply, err := y.Acquire(t.Context(), resize); err != nil || reply.State != driver.Gone {
				t.Errorf("resize: %v, %v", reply.State, err)
			}
			r.calls -= 2
		}
		for i, want := range []int{3, 1} {
			r.calls = 0
			if reply, err := x.Acquire(t.Context(), guardedRequest("x")); err != nil || reply.State != driver.Granted || r.calls != want {
				t.Errorf("request %d: %v, %v after %d updates; want a grant after %d", i+1, reply.State, err, r.calls, want)
			}
		}
		time.Sleep(time.Second) // the token is forgotten
		if release(t, x, driver.Ref{Key: "k", ID: "x"}, driver.Released); r.size() != 1 {
			t.Errorf("%d records, want the mark alone", r.size())
		}
	})
}
