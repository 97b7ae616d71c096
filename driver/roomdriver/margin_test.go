package roomdriver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// counting is a table whose clock counts seconds.
type counting struct{ *rows }

func (c counting) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	return c.rows.Update(ctx, key, func(record []byte, now time.Time) ([]byte, error) { return f(record, now.Truncate(time.Second)) })
}

// TestMargin_NoTimeIsShorter begins times at the end of a step of the clock: a lease, its renewal, a
// place in the queue, a call to the head of the queue, a delay, a forbidden id.
func TestMargin_NoTimeIsShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 900 * time.Millisecond
		d := open(t, counting{newRows()}, roomdriver.WithMargin(time.Second))
		ask := func(key, id string, want driver.State) {
			t.Helper()
			req := driver.Request{Key: key, ID: id, HintAddress: id, TTL: ttl, TicketTTL: ttl, ConfirmWindow: ttl}
			if key == "broken" {
				req.LockDelay = ttl
			}
			acquire(t, d, req, want)
		}
		renew := func(key, id string, want driver.State) {
			t.Helper()
			renewed(t, d, want, driver.Ref{Key: key, ID: id, TTL: ttl, TicketTTL: ttl, HintAddress: id})
		}
		reserve := func(by string, want bool) {
			t.Helper()
			if ok, err := d.Reserve(t.Context(), by, ttl); ok != want || err != nil {
				t.Errorf("reserve by %s: %v, %v", by, ok, err)
			}
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1990 * time.Millisecond)))
		ask("renewed", "a", driver.Granted)
		ask("queue", "a", driver.Granted)
		ask("queue", "b", driver.Queued)
		ask("line", "a", driver.Granted)
		ask("line", "b", driver.Queued)
		ask("delay", "a", driver.Granted)
		reserve("a", true)
		release(t, d, driver.Ref{Key: "delay", ID: "a", KeepClosed: ttl}, driver.Released)
		ask("broken", "a", driver.Granted)
		if reply, err := d.Break(t.Context(), "broken", "a", ""); err != nil || reply.State != driver.Released {
			t.Errorf("break: %+v, %v", reply, err)
		}
		release(t, d, driver.Ref{Key: "forbidden", ID: "a", RejectIDFor: ttl}, driver.Gone)

		time.Sleep(ttl - time.Millisecond)
		renew("renewed", "a", driver.Granted)
		renew("line", "a", driver.Granted)
		renew("line", "b", driver.Queued)
		renew("queue", "a", driver.Granted)
		renew("queue", "b", driver.Queued)
		ask("delay", "b", driver.Queued)
		ask("broken", "b", driver.Queued)
		reserve("b", false)
		noError(t, d.Mark(t.Context(), driver.Mark{Name: "m", Quarantine: ttl}, "a"))
		ask("forbidden", "a", driver.Gone)
		release(t, d, driver.Ref{Key: "queue", ID: "a"}, driver.Released)

		time.Sleep(ttl - time.Millisecond)
		ask("renewed", "b", driver.Queued)
		renew("line", "b", driver.Queued)
		if mark, ok, err := d.Marked(t.Context()); !ok || mark.Quarantine == 0 || err != nil {
			t.Errorf("%+v, %v, %v", mark, ok, err)
		}
		renew("queue", "b", driver.Granted) // was handed to it, to be confirmed in time
	})
}
