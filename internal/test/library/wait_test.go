package library_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// TestLock_HR_D3_DeadWaiterWithoutAnAddressCostsWhatIsDocumented: a waiter without hints is never
// handed the lock, and so its death is noticed only when its ticket expires, as documented.
func TestLock_HR_D3_DeadWaiterWithoutAnAddressCostsWhatIsDocumented(t *testing.T) {
	for offset := range 5 { // where in its polling it dies
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			a, _ := open(t, store)
			b, _ := open(t, store)
			cut := newFault(store)
			deaf := newClient(t, struct{ driver.Driver }{cut})
			first := lock(t, a, "k")
			ctx, cancel := context.WithCancel(t.Context())
			dying := newCalls(t)
			dying.begin(ctx, 0, deaf.Mutex("k"))
			all := queueUp(t, b, 1)
			time.Sleep(10*time.Second + time.Duration(offset)*100*time.Millisecond)
			cut.on(renew, 0, hangs) // it dies
			cut.on(acquire, 0, hangs)
			cut.on(release, 0, fails)
			died := time.Now()
			giveBack(t, first)
			giveBack(t, all.served(0))
			if took := time.Since(died); took > 4*time.Second+50*time.Millisecond {
				t.Errorf("a dead waiter cost %v", took)
			}
			cancel()
			dying.next()
			time.Sleep(time.Minute)
			noErr(t, deaf.Close())
		})
	}
	doc, err := os.ReadFile("../../../leasehold.go")
	if err != nil || !strings.Contains(strings.ReplaceAll(string(doc), "\n// ", " "), "four seconds if the store cannot wake it") {
		t.Errorf("the documentation of the package differs: %v", err)
	}
}

func TestHeld_HR_C8_RemainingIsAsOfNow(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store, leasehold.WithName("holder"))
		b, _ := open(t, store)
		retrying, _ := open(t, store, leasehold.WithRetry(leasehold.Constant(time.Minute)))
		l := lock(t, a, "k", leasehold.WithTTL(time.Minute), leasehold.WithoutRenewal())
		for _, c := range []*leasehold.Client{b, retrying} {
			_, err := c.Mutex("k", leasehold.WithMaxWait(10*time.Second)).Lock(t.Context())
			held := new(leasehold.HeldError)
			if !errors.As(err, &held) || held.Owner != "holder" {
				t.Fatalf("%v: it is still the same", err)
			}
			snap, _ := store.Inspect(t.Context(), "k")
			if off := (held.Remaining - snap.Holders[0].Remaining).Abs(); off > 5*time.Millisecond {
				t.Errorf("%v, but the store keeps it for %v", held.Remaining, snap.Holders[0].Remaining)
			}
		}
		_ = l.Release()
	})
}
