package roomdriver_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// guardedRequest returns a request for k, as a quorum sends it.
func guardedRequest(id string) driver.Request {
	return driver.Request{Key: "k", ID: id, TTL: time.Hour, Guard: true}
}

// A request with Guard takes several accesses to the table: of the lock, of the mark, and
// of the lock again. Wherever between them the table loses its data, it keeps nothing that
// lets a later request pass without a mark.
func TestGuard_TableThatLosesItsDataWithinARequestRefusesTheNext(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			for lossIn := 1; lossIn <= 10; lossIn++ {
				r := newRows()
				d := open(t, kind.table(r), kind.options...)
				if err := d.Mark(t.Context(), driver.Mark{Name: "m"}, ""); err != nil {
					t.Fatal(err)
				}
				r.lossIn = lossIn
				_, err := d.Acquire(t.Context(), guardedRequest("x"))
				if err != nil && !errors.Is(err, driver.ErrAmnesia) {
					t.Errorf("data lost after %d accesses: %v, want %v or none", lossIn, err, driver.ErrAmnesia)
				}
				if r.lossIn > 0 {
					r.lossIn = 0
					clear(r.records)
				}
				for _, id := range []string{"x", "y"} {
					if reply, err := d.Acquire(t.Context(), guardedRequest(id)); !errors.Is(err, driver.ErrAmnesia) {
						t.Errorf("data lost after %d accesses: the next request of %s got %v, %v; want %v", lossIn, id, reply.State, err, driver.ErrAmnesia)
					}
				}
			}
		})
	}
}

// First requests of several processes pass at the same time, also if the table forgets a
// token as soon as its lease ends.
func TestGuard_FirstRequestsAtOnce(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			r := newRows()
			if err := open(t, kind.table(r), kind.options...).Mark(t.Context(), driver.Mark{Name: "m"}, ""); err != nil {
				t.Fatal(err)
			}
			var work sync.WaitGroup
			for _, id := range []string{"a", "b", "c", "d"} {
				d := open(t, kind.table(r), kind.options...)
				work.Go(func() {
					for range 20 {
						reply, err := d.Acquire(t.Context(), guardedRequest(id))
						if err != nil {
							t.Errorf("acquire: %v", err)
						} else if reply.State == driver.Granted {
							if _, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: id}); err != nil {
								t.Errorf("release: %v", err)
							}
						}
					}
				})
			}
			work.Wait()
		})
	}
}

// A first request asks for the lock, looks at the mark, and asks again. The next costs no
// more than one without Guard.
func TestGuard_FirstRequestCostsThreeUpdates(t *testing.T) {
	r := newRows()
	d := open(t, r)
	if err := d.Mark(t.Context(), driver.Mark{Name: "m"}, ""); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{3, 1} {
		r.calls = 0
		if reply, err := d.Acquire(t.Context(), guardedRequest("x")); err != nil || reply.State != driver.Granted || r.calls != want {
			t.Errorf("request %d: %v, %v after %d updates; want a grant after %d", i+1, reply.State, err, r.calls, want)
		}
	}
}
