package browsertest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// sparse is a store whose list has no name on its first pages.
type sparse struct{ *memdriver.Driver }

func (s sparse) List(ctx context.Context, prefix, cursor string) ([]string, string, error) {
	if len(cursor) < 50 {
		return nil, cursor + "+", nil
	}
	return s.Driver.List(ctx, prefix, strings.TrimLeft(cursor, "+"))
}

func TestPage_AWalkToTheFirstLockBeginsAgainAndIsNotInTheAddress(t *testing.T) {
	v := start(t, sparse{memdriver.New()})
	p := open(t, v.url, 1280, 800)
	p.says("No lock is held, and nobody waits.")
	for _, id := range []string{"a", "b"} {
		v.take(driver.Request{Key: "far", ID: id})
		p.rowSays("far", "mutex")
		if at := js[string](p, "location.hash"); strings.Contains(at, "cursor") {
			t.Error(at)
		}
		v.breaks("far", id, "a test")
		p.until("the lock has gone", "!"+row("far"))
	}
	p.clean()
}

// littered is a store in which one key holds no lock.
type littered struct{ *memdriver.Driver }

func (l littered) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	if key == "bad" {
		return driver.Snapshot{}, fmt.Errorf("%w: it is a list", driver.ErrMismatch)
	}
	return l.Driver.Inspect(ctx, key)
}

func TestPage_TheWorstLockIsFirstThenTheLongestWait(t *testing.T) {
	v := start(t, littered{memdriver.New()})
	ago := func(minutes int) time.Time { return time.Now().Add(-time.Duration(minutes) * time.Minute) }
	for i, key := range []string{"short wait", "long wait", "short hold", "long hold", "bad", "closed"} {
		v.take(driver.Request{Key: key, ID: "a", Owner: "worker-7:1", Since: ago(5 * i), LockDelay: time.Hour})
	}
	v.take(driver.Request{Key: "short wait", ID: "b", Since: ago(1), TicketTTL: time.Hour})
	v.take(driver.Request{Key: "long wait", ID: "b", Since: ago(2), TicketTTL: time.Hour})
	v.breaks("closed", "a", "a test")
	p := open(t, v.url, 1280, 800)
	p.until("the order", `[...document.querySelectorAll("#locks tbody tr")].map((r) => r.dataset.key).join() === "bad,closed,long wait,short wait,long hold,short hold"`)
	p.rowSays("bad", "it is a list")
	p.rowSays("closed", "closed for another 59 min")
	p.until("live", `document.querySelector("#live").dataset.state === "live"`)
	js[any](p, `location.hash = "#/lock/closed", null`)
	p.says("Closed for another 59 min")
	p.clean()
}

func TestPage_ALeaseThatIsNotToldOfIsNotOver(t *testing.T) {
	v := start(t, memdriver.New())
	refs := make([]driver.Ref, 220)
	for i := range refs {
		id := fmt.Sprint("h", i)
		v.take(driver.Request{Key: "gpu", ID: id, Mode: driver.Shared, Limit: 300, TTL: 4 * time.Second, Since: time.Now()})
		refs[i] = driver.Ref{Key: "gpu", ID: id, TTL: 4 * time.Second}
	}
	var renewing sync.WaitGroup
	t.Cleanup(renewing.Wait)
	renewing.Go(func() {
		for timing.Sleep(t.Context(), 500*time.Millisecond) {
			v.store.Renew(context.Background(), refs, func(int, driver.Reply, error) {})
		}
	})
	p := open(t, v.url+"#/lock/gpu", 1280, 800)
	p.until("leases of an unknown rest", `[...document.querySelectorAll(".holder .left")].filter((x) => x.innerText === "not known").length === 20`)
	if n := js[int](p, `[...document.querySelectorAll(".holder .left")].filter((x) => x.innerText === "over").length`); n > 0 {
		t.Errorf("%d leases are over", n)
	}
	p.clean()
}
