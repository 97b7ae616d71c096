package redisroom

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// record returns the fields of the record of the room.
func (l *lens) record() map[string]string {
	return l.server.Keys[string(appendSide(nil, []byte(lensPrefix+lensKey), recordKey))].Hash
}

func (l *lens) pass(d time.Duration) { l.server.Now += d.Microseconds() }

// TestPlaces_OfAHolderThatWasEvictedAreGiven: the field of a holder is evicted, and its places
// are free once its lease is over and no other holder is left.
func TestPlaces_OfAHolderThatWasEvictedAreGiven(t *testing.T) {
	for _, last := range []string{"is released", "is released after a purge", "expires"} {
		l := newLens(lensStart)
		brief := func(req *driver.Request) { req.TTL = 300 * time.Millisecond }
		mustAcquire(t, l.store, driver.Granted, asking("evicted", places(2, 3), brief))
		mustAcquire(t, l.store, driver.Granted, asking("b", places(1, 3), func(req *driver.Request) {
			if last == "expires" {
				req.TTL = 350 * time.Millisecond
			}
		}))
		mustAcquire(t, l.store, driver.Queued, asking("x", func(req *driver.Request) {
			req.TicketTTL, req.ConfirmWindow, req.HintAddress = time.Minute, time.Second, "X"
		}))
		delete(l.record(), "evicted")
		l.pass(400 * time.Millisecond)
		if last == "is released after a purge" {
			mustAcquire(t, l.store, driver.Busy, asking("try", places(1, 3)))
		}
		if last != "expires" {
			if _, err := l.store.Release(t.Context(), driver.Ref{Key: lensKey, ID: "b"}); err != nil {
				t.Error(err)
			}
		}
		if got, err := renewOne(t, l.store, "x"); err != nil || got.State != driver.Granted {
			t.Errorf("%+v, %v", got, err)
		}
		lower := asking("x", places(1, 3))
		lower.Downgrade = true
		if got := mustAcquire(t, l.store, driver.Granted, lower).Places; got != "0" {
			t.Errorf("the last %s: the only holder has the place %q of 3", last, got)
		}
		mustAcquire(t, l.store, driver.Granted, asking("y", places(2, 3)))
	}
}

// TestRenew_ARecordOfAnotherFormIsNotProlonged: a script that takes scalars with one word less
// for its own would open the room to a writer next to a reader. Its token is kept nevertheless.
func TestRenew_ARecordOfAnotherFormIsNotProlonged(t *testing.T) {
	l := newLens(lensStart)
	ahead := lensStart + (5 * time.Hour).Microseconds()
	mustAcquire(t, l.store, driver.Granted, asking("long", reads, func(req *driver.Request) { req.TTL, req.MinToken = 3*time.Hour, ahead }))
	mustAcquire(t, l.store, driver.Granted, asking("short", reads, func(req *driver.Request) { req.TTL = 2 * time.Second }))
	words := strings.Split(l.record()["#"], " ")
	l.record()["#"] = strings.Join(words[:len(words)-1], " ")
	l.store.Renew(t.Context(), []driver.Ref{{Key: lensKey, ID: "short", TTL: 2 * time.Second}}, func(_ int, reply driver.Reply, err error) {
		if err != nil || reply.State != driver.Gone {
			t.Errorf("%+v, %v", reply, err)
		}
	})
	l.pass(3 * time.Second)
	mustAcquire(t, l.store, driver.Busy, asking("writer", nil))
	l.pass(3 * time.Hour)
	if reply := mustAcquire(t, l.store, driver.Granted, asking("writer", nil)); reply.Token <= ahead {
		t.Errorf("the token fell to %d after %d", reply.Token, ahead)
	}
}
