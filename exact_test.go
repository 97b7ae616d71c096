package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/memdriver"
)

// What the documentation says in passing.

func TestElection_HR_F10_TextThatWouldBeChangedOnItsWayIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		err := c.Election("k", "host\xff:80").Lead(t.Context(), func(context.Context, *leasehold.Lease) error { return nil })
		wantErr(t, err, leasehold.ErrInvalid)
		for _, labels := range []map[string]string{{"a": "\xff"}, {"\xff": "a"}} {
			_, err := c.Mutex("k", leasehold.WithLabels(labels)).TryLock(t.Context())
			wantErr(t, err, leasehold.ErrInvalid)
		}
		if n := d.count(acquire); n > 0 {
			t.Errorf("%d requests were sent", n)
		}
	})
}

func TestClient_HR_F10_EverythingSaysClosedAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, err := leasehold.New(memdriver.New())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		_, inspect := c.Inspect(t.Context(), "k")
		_, leader := c.Election("k", "").Leader(t.Context())
		var keys error
		for _, keys = range c.Keys(t.Context(), "") {
		}
		_, lock := c.Mutex("k").Lock(t.Context())
		_, adopt := c.Mutex("k").Adopt(t.Context(), "ID")
		for name, err := range map[string]error{
			"inspect": inspect, "keys": keys, "lock": lock, "leader": leader, "adopt": adopt,
			"break":  c.Break(t.Context(), "k", "id", "reason"),
			"resize": c.Semaphore("k", 3).Resize(t.Context(), 4),
		} {
			if !errors.Is(err, leasehold.ErrClosed) || errors.Is(err, leasehold.ErrUnavailable) || errors.Is(err, leasehold.ErrUnknown) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// An error reads as a path, on which nothing comes twice.
func TestErrors_SayEverythingOnce(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		never := func(context.Context) error { return nil }
		short := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		shutDown := func() context.Context {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second/2, errors.New("too late"))
			t.Cleanup(cancel)
			return ctx
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		reason, quit := context.WithCancelCause(t.Context())
		quit(errors.New("shutting down"))
		wrapped, quit := context.WithCancelCause(t.Context())
		quit(fmt.Errorf("the server: %w", context.Canceled))
		holder, _ := open(t, store)
		lock(t, holder, "held")
		once := func(name string, err error) {
			t.Helper()
			if err == nil {
				t.Errorf("%s: no error", name)
				return
			}
			seen := make(map[string]bool)
			for _, part := range regexp.MustCompile(`: |; `).Split(err.Error(), -1) {
				if seen[part] {
					t.Errorf("%s: %q twice in %q", name, part, err)
				}
				seen[part] = true
			}
		}
		patient := leasehold.WithMaxWait(time.Second)
		for what, f := range map[string]*fault{"answers": nil, "hangs": &hangs, "fails": &fails, "refuses": &refuses} {
			if f != nil {
				d.on(acquire, 0, *f)
				d.on(renew, 0, *f)
			}
			for key, ask := range map[string]func(*leasehold.Mutex, context.Context) (*leasehold.Lease, error){"Lock": (*leasehold.Mutex).Lock, "TryLock": (*leasehold.Mutex).TryLock} {
				for name, ctx := range map[string]context.Context{"a time-out": short(), "a time-out with a cause": shutDown(), "an end": canceled, "a cause": reason, "a wrapped end": wrapped} {
					_, err := ask(c.Mutex("held"), ctx)
					once(fmt.Sprintf("%s of a store that %s, under %s", key, what, name), err)
				}
				_, err := ask(c.Mutex("held", patient), t.Context())
				once(fmt.Sprintf("%s with a maximum wait, of a store that %s", key, what), err)
				_, err = ask(c.Mutex("held", patient, leasehold.WithRetry(leasehold.Constant(100*time.Millisecond))), t.Context())
				once(fmt.Sprintf("%s with retry, of a store that %s", key, what), err)
			}
			d.heal()
			under := short()
			once("Do whose context ended", leasehold.Do(under, c.Mutex("k"), func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}))
			once("All", leasehold.Do(t.Context(), leasehold.All(c.Mutex("a"), c.Mutex("held", patient)), never))
			l := lock(t, c, "lost")
			if f != nil {
				d.on(renew, 0, *f)
				d.on(release, 0, *f)
				once("Extend of a store that "+what, l.Extend(short(), ttl))
				<-l.Context().Done()
				once("the cause of a loss, of a store that "+what, context.Cause(l.Context()))
				once("release after it", l.Release())
			}
			d.heal()
			time.Sleep(time.Minute)
		}
	})
}

func TestErrors_HR_F10_AreOneLine(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		held := lock(t, c, "held")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the caller's reason"))
		d.on(release, 0, fails)
		_, options := leasehold.New(memdriver.New(), leasehold.WithTTL(0), leasehold.WithName(""))
		_, cancelled := c.Mutex("k").Lock(ctx)
		_, all := leasehold.All(c.Mutex("a"), c.Mutex("held")).TryLock(t.Context())
		do := leasehold.Do(t.Context(), c.Mutex("do"), func(context.Context) error { return errors.New("failed") })
		lead := c.Election("e", "").Lead(t.Context(), func(context.Context, *leasehold.Lease) error { return errors.New("failed") })
		for name, err := range map[string]error{"options": options, "cancelled": cancelled, "all": all, "do": do, "lead": lead} {
			if err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %q", name, err)
			}
		}
		wantErr(t, cancelled, context.Canceled)
		wantErr(t, all, leasehold.ErrHeld, leasehold.ErrUnknown)
		d.heal()
		if err := held.Release(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
	})
}

func TestReentry_HR_F10_UnderALeaseThatReachedItsMaximumIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		m := c.Mutex("k", leasehold.WithMaxHold(time.Second))
		outer, err := m.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		for _, ctx := range []context.Context{outer.Context(), context.WithoutCancel(outer.Context())} {
			l, err := m.Lock(ctx)
			if err == nil {
				t.Errorf("a fresh hold: %v", l.State())
				_ = l.Release()
				continue
			}
			wantErr(t, err, leasehold.ErrMaxHold)
		}
		giveBack(t, outer)
	})
}

func TestReentry_HR_F10_LastReleaseFreesTheLockInAnyOrder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		b, _ := open(t, store)
		outer := lock(t, a, "k")
		inner, err := a.Mutex("k").Lock(outer.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := outer.Release(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		wantErr(t, context.Cause(inner.Context()), leasehold.ErrReleased) // derived from the outer one's
		_, err = b.Mutex("k").TryLock(t.Context())
		wantErr(t, err, leasehold.ErrHeld)
		time.Sleep(20 * time.Second)
		_, err = b.Mutex("k").TryLock(t.Context())
		wantErr(t, err, leasehold.ErrHeld)
		if err := inner.Release(); err != nil {
			t.Error(err)
		}
		wantFree(t, store, "k")
	})
}

func TestReentry_HR_F10_EndOfTheCallersContextEndsAllDepths(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		ctx, cancel := context.WithCancel(t.Context())
		outer, err := c.Mutex("k").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		inner, err := c.Mutex("k").Lock(outer.Context())
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		<-inner.Context().Done()
		giveBack(t, outer)
		giveBack(t, inner)
		wantFree(t, store, "k")
	})
}
