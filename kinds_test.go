package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/memdriver"
)

// kindsBubble runs f in virtual time with two clients of one store.
func kindsBubble(t *testing.T, f func(t *testing.T, a, b *leasehold.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		f(t, kindsClient(t, store), kindsClient(t, store))
	})
}

func kindsClient(t *testing.T, store *memdriver.Driver, opts ...leasehold.Option) *leasehold.Client {
	t.Helper()
	c, err := leasehold.New(store, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// must returns a lease or fails the test.
func must(t *testing.T) func(*leasehold.Lease, error) *leasehold.Lease {
	return func(l *leasehold.Lease, err error) *leasehold.Lease {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

func giveBack(t *testing.T, leases ...leasehold.AnyLease) {
	t.Helper()
	for _, l := range leases {
		if err := l.Release(); err != nil {
			t.Errorf("release: %v", err)
		}
	}
}

func refused(t *testing.T, l leasehold.AnyLease, err error, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, %v, want an error that matches %v", l, err, want)
	}
}

func TestRWMutex_ReadersShareAndWriterIsAlone(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		ctx := t.Context()
		r1 := must(t)(a.RWMutex("k").RLock(ctx))
		r2 := must(t)(b.RWMutex("k").RLock(ctx))
		l, err := b.RWMutex("k").TryLock(ctx)
		refused(t, l, err, leasehold.ErrHeld)
		l, err = b.Mutex("k").TryLock(ctx) // K13
		refused(t, l, err, leasehold.ErrHeld)
		giveBack(t, r1, r2)
		w := must(t)(a.Mutex("k").Lock(ctx))
		l, err = b.RWMutex("k").TryRLock(ctx)
		refused(t, l, err, leasehold.ErrHeld)
		giveBack(t, w)
	})
}

func TestRWMutex_UpgradeIsRefusedNotWaitedFor(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, _ *leasehold.Client) {
		r := must(t)(a.RWMutex("k").RLock(t.Context()))
		l, err := a.RWMutex("k").Lock(r.Context())
		refused(t, l, err, leasehold.ErrMismatch)
		again := must(t)(a.RWMutex("k").RLock(r.Context()))
		giveBack(t, r, again)
	})
}

func TestSemaphore_LimitIsAgreedAndKept(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		ctx := t.Context()
		l1 := must(t)(a.Semaphore("k", 3).LockN(ctx, 2))
		l, err := b.Semaphore("k", 3).TryLockN(ctx, 2)
		refused(t, l, err, leasehold.ErrHeld)
		l, err = b.Semaphore("k", 4).TryLock(ctx) // K9
		refused(t, l, err, leasehold.ErrMismatch)
		for _, n := range []int{0, -1, 4} {
			l, err = b.Semaphore("k", 3).LockN(ctx, n)
			refused(t, l, err, leasehold.ErrInvalid)
		}
		l, err = b.Semaphore("k", 0).Lock(ctx)
		refused(t, l, err, leasehold.ErrInvalid)
		l2 := must(t)(b.Semaphore("k", 3).TryLock(ctx))
		giveBack(t, l1, l2)
	})
}

func TestSemaphore_LargeRequestIsServedInItsTurn(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		ctx := t.Context()
		one := must(t)(a.Semaphore("k", 3).Lock(ctx))
		order := make(chan int, 2)
		for _, n := range []int{3, 1} {
			go func() {
				l, err := b.Semaphore("k", 3).LockN(ctx, n)
				if err != nil {
					t.Error(err)
					return
				}
				order <- n
				giveBack(t, l)
			}()
			synctest.Wait()
		}
		giveBack(t, one)
		if got := []int{<-order, <-order}; !slices.Equal(got, []int{3, 1}) {
			t.Errorf("served in the order %v", got)
		}
		synctest.Wait()
	})
}

func TestAll_IsTakenWholeOrNotAtAll(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		ctx := t.Context()
		held := must(t)(b.Mutex("b").Lock(ctx))
		all := leasehold.All(a.Mutex("c"), a.RWMutex("a").RLocker(), a.Mutex("b"), a.Mutex("c"))
		none, err := all.TryLock(ctx)
		refused(t, none, err, leasehold.ErrHeld)
		free := must(t)(b.Mutex("a").TryLock(ctx)) // nothing is left of the attempt
		giveBack(t, held, free)

		whole, err := all.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(whole.Parts()); n != 3 {
			t.Errorf("%d parts, want 3", n)
		}
		giveBack(t, whole)
		giveBack(t, must(t)(b.Mutex("c").TryLock(ctx)))

		if _, err := leasehold.All().Lock(ctx); !errors.Is(err, leasehold.ErrInvalid) {
			t.Errorf("no locks: %v", err)
		}
	})
}

func TestAll_AcceptsEverythingAndKeepsTheStrongestUse(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		gpu := a.Semaphore("gpu", 4)
		inner := leasehold.All(a.Mutex("m"), gpu, a.RWMutex("rw").RLocker())
		whole, err := leasehold.All(inner, gpu.Places(3), a.RWMutex("w"), leasehold.All(inner, a.Mutex("rw"))).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, p := range whole.Parts() {
			keys = append(keys, p.Key())
			if token := whole.Tokens()[p.Key()]; token == 0 || token != p.Token() {
				t.Errorf("token %d of %s, want %d", token, p.Key(), p.Token())
			}
		}
		if want := []string{"gpu", "m", "rw", "w"}; !slices.Equal(keys, want) || len(whole.Tokens()) != len(want) {
			t.Errorf("keys %q, tokens %v, want %q", keys, whole.Tokens(), want)
		}
		l, err := b.RWMutex("rw").TryRLock(t.Context()) // the stronger use is the writer's
		refused(t, l, err, leasehold.ErrHeld)
		l, err = b.Semaphore("gpu", 4).TryLockN(t.Context(), 2) // three places are taken
		refused(t, l, err, leasehold.ErrHeld)
		giveBack(t, must(t)(b.Semaphore("gpu", 4).TryLock(t.Context())))
		if whole.State() != leasehold.Held || whole.Remaining() <= 0 {
			t.Errorf("%v for %v", whole.State(), whole.Remaining())
		}
		giveBack(t, whole)
		if whole.State() != leasehold.Released || whole.Remaining() != 0 {
			t.Errorf("%v for %v", whole.State(), whole.Remaining())
		}

		var none *leasehold.Mutex
		for _, wrong := range []*leasehold.Multi{
			leasehold.All(a.Mutex("m"), none), leasehold.All(gpu.Places(5)), leasehold.All(leasehold.All()),
			leasehold.All(a.Mutex("m"), b.Mutex("n")),
		} {
			l, err := wrong.TryLock(t.Context())
			refused(t, l, err, leasehold.ErrInvalid)
		}
	})
}

// TestAll_ReleaseTakesOneTimeout, whatever the number of locks, also of a call that fails at
// the last of them.
func TestAll_ReleaseTakesOneTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(time.Hour), leasehold.WithReleaseTimeout(5*time.Second))
		var parts []leasehold.Part
		for i := range 10 {
			parts = append(parts, c.Mutex(fmt.Sprint("k", i)))
		}
		bounded := func(what string, call func() error) {
			t.Helper()
			d.on(release, 0, hangs)
			start := time.Now()
			err := call()
			if took := time.Since(start); took > 6*time.Second || err == nil {
				t.Errorf("%s took %v with a release timeout of 5 s: %v", what, took, err)
			}
			d.heal()
			time.Sleep(time.Minute)
		}
		l, err := leasehold.All(parts...).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		bounded("Release", l.Release)
		other, _ := open(t, store)
		lock(t, other, "k9")
		bounded("TryLock", func() error { _, err := leasehold.All(parts...).TryLock(t.Context()); return err })
	})
}

// A call that gives up has lost nothing that anybody worked under.
func TestAll_EndOfTheContextHalfWayIsNoLoss(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		held := must(t)(b.Mutex("b").Lock(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := leasehold.All(a.Mutex("a"), a.Mutex("b")).Lock(ctx)
		if !errors.Is(err, leasehold.ErrHeld) || !errors.Is(err, context.Canceled) || errors.Is(err, leasehold.ErrLost) {
			t.Errorf("%v, want that it was held until the end of the context", err)
		}
		giveBack(t, held, must(t)(b.Mutex("a").TryLock(t.Context())))
	})
}

func TestDo_TakesEveryKind(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		single := func(ctx context.Context) error {
			if l, ok := leasehold.FromContext(ctx); !ok || l.Token() == 0 {
				t.Errorf("lease %v of the context", l)
			}
			if l, ok := leasehold.MultiFromContext(ctx); ok {
				t.Errorf("lease %v of several", l)
			}
			return nil
		}
		for _, lock := range []leasehold.Locker{
			a.Mutex("k"), a.RWMutex("k"), a.RWMutex("k").RLocker(), a.Semaphore("k", 3), a.Semaphore("k", 3).Places(2),
		} {
			if err := leasehold.Do(t.Context(), lock, single); err != nil {
				t.Errorf("%T: %v", lock, err)
			}
			if ran, err := leasehold.TryDo(t.Context(), lock, single); !ran || err != nil {
				t.Errorf("%T: %t, %v", lock, ran, err)
			}
			held := must(t)(b.Mutex("k").Lock(t.Context()))
			if ran, err := leasehold.TryDo(t.Context(), lock, single); ran || err != nil {
				t.Errorf("%T that is held: %t, %v", lock, ran, err)
			}
			giveBack(t, held)
		}
		several := leasehold.All(a.Mutex("k"), a.Mutex("l"))
		if err := leasehold.Do(t.Context(), several, func(ctx context.Context) error {
			if l, ok := leasehold.MultiFromContext(ctx); !ok || len(l.Tokens()) != 2 {
				t.Errorf("lease %v of the context", l)
			}
			if l, ok := leasehold.FromContext(ctx); ok {
				t.Errorf("one lease %v of several", l)
			}
			return leasehold.Do(ctx, a.Mutex("l"), single) // re-enters
		}); err != nil {
			t.Error(err)
		}
		if ran, err := leasehold.TryDo(t.Context(), several, func(context.Context) error { return nil }); !ran || err != nil {
			t.Errorf("several: %t, %v", ran, err)
		}
	})
}

func TestAll_K12_LossOfOneIsLossOfAll(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		ctx := t.Context()
		whole, err := leasehold.All(a.Mutex("a"), a.Mutex("b"), a.Mutex("c")).Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Break(ctx, "b", whole.Parts()[1].ID(), "test"); err != nil {
			t.Fatal(err)
		}
		<-whole.Context().Done()
		synctest.Wait()
		if cause := context.Cause(whole.Context()); !errors.Is(cause, leasehold.ErrBroken) {
			t.Errorf("cause %v", cause)
		}
		if whole.State() != leasehold.Lost {
			t.Errorf("state %v", whole.State())
		}
		if err := whole.Release(); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("release: %v", err)
		}
		giveBack(t, must(t)(b.Mutex("a").TryLock(ctx)), must(t)(b.Mutex("c").TryLock(ctx)))
	})
}

func TestElection_LeadsResignsAndIsObserved(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		e, f := a.Election("k", "first:80"), b.Election("k", "second:80")
		lead := func(e *leasehold.Election) chan error {
			done := make(chan error, 1)
			go func() {
				done <- e.Lead(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
					<-ctx.Done()
					return context.Cause(ctx)
				})
			}()
			synctest.Wait()
			return done
		}
		first := lead(e)
		lead(f)
		var values []string
		for l, err := range f.Observe(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, l.Value)
			if len(values) == 2 {
				break
			}
			e.Resign()
			if err := <-first; !errors.Is(err, leasehold.ErrResigned) {
				t.Errorf("resigned leader: %v", err)
			}
		}
		if !slices.Equal(values, []string{"first:80", "second:80"}) {
			t.Errorf("observed %q", values)
		}
		stop()
		synctest.Wait()
	})
}

func TestElection_LeadsAgainAfterALoss(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		ctx := t.Context()
		terms := 0
		err := a.Election("k", "").Lead(ctx, func(ctx context.Context, l *leasehold.Lease) error {
			if terms++; terms == 2 {
				return nil
			}
			if err := b.Break(ctx, "k", l.ID(), "test"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if err != nil || terms != 2 {
			t.Errorf("%d terms, %v", terms, err)
		}
	})
}

func TestBreak_HolderLearnsTheReason(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		ctx := t.Context()
		l := must(t)(a.Mutex("k", leasehold.WithLockDelay(time.Minute)).Lock(ctx))
		if err := b.Break(ctx, "k", "other", "x"); !errors.Is(err, leasehold.ErrNotHeld) {
			t.Errorf("break of another id: %v", err)
		}
		if err := b.Break(ctx, "k", l.ID(), "host is gone"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Mutex("k").TryLock(ctx); !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("no lock delay after a break: %v", err)
		}
		<-l.Context().Done()
		err := l.Release()
		if !errors.Is(err, leasehold.ErrBroken) || !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("release: %v", err)
		}
		t.Log(err)
	})
}

func TestLease_K7_DowngradeLetsReadersInAndNoWriter(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		ctx := t.Context()
		w := must(t)(a.RWMutex("k").Lock(ctx))
		entered := make(chan string, 2)
		for _, who := range []string{"reader", "writer"} {
			go func() {
				m := b.RWMutex("k")
				take := map[string]func(context.Context) (*leasehold.Lease, error){"reader": m.RLock, "writer": m.Lock}[who]
				l, err := take(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				entered <- who
				giveBack(t, l)
			}()
			synctest.Wait()
		}
		time.Sleep(time.Second) // both listen by now
		start := time.Now()
		if err := w.Downgrade(ctx); err != nil {
			t.Fatal(err)
		}
		if who := <-entered; who != "reader" || time.Since(start) > 0 {
			t.Errorf("%s entered after %v", who, time.Since(start))
		}
		if l, err := b.Mutex("k").TryLock(ctx); !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("a writer slipped in: %v, %v", l, err)
		}
		if err := w.Downgrade(ctx); !errors.Is(err, leasehold.ErrMismatch) {
			t.Errorf("downgrade of a reader: %v", err)
		}
		giveBack(t, w)
		if who := <-entered; who != "writer" {
			t.Errorf("%s entered last", who)
		}
		synctest.Wait()
	})
}

func TestSemaphore_K10_ResizeRevokesNothing(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		ctx := t.Context()
		var held []*leasehold.Lease
		for range 5 {
			held = append(held, must(t)(a.Semaphore("k", 5).Lock(ctx)))
		}
		if err := b.Semaphore("k", 5).Resize(ctx, 2); err != nil {
			t.Fatal(err)
		}
		for i, l := range held {
			if l.State() != leasehold.Held {
				t.Errorf("place %d: %v", i, l.State())
			}
		}
		for i := range 4 { // 5, 4, 3, 2 are held
			if l, err := b.Semaphore("k", 2).TryLock(ctx); !errors.Is(err, leasehold.ErrHeld) {
				t.Errorf("with %d held: %v, %v", 5-i, l, err)
			}
			if l, err := b.Semaphore("k", 5).TryLock(ctx); !errors.Is(err, leasehold.ErrMismatch) {
				t.Errorf("by the old limit: %v, %v", l, err)
			}
			giveBack(t, held[i])
		}
		giveBack(t, held[4], must(t)(b.Semaphore("k", 2).TryLock(ctx)))
	})
}

// A request of a Resize that the network has held up for long arrives in the end.
func TestSemaphore_ALateResizeUndoesNoLaterOne(t *testing.T) {
	for name, ends := range map[string]bool{"answered by its second try": false, "never answered": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				a, d := open(t, store)
				b, _ := open(t, store)
				held := must(t)(b.Semaphore("k", 4).Lock(t.Context()))
				defer giveBack(t, held)
				d.on(acquire, 1, fault{stray: 20 * time.Second})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if ends {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				}
				defer cancel()
				if err := a.Semaphore("k", 4).Resize(ctx, 5); ends {
					wantErr(t, err, leasehold.ErrUnknown, context.DeadlineExceeded)
				} else if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if err := b.Semaphore("k", 5).Resize(t.Context(), 10); err != nil {
					t.Fatal(err)
				}
				time.Sleep(40 * time.Second) // the first try has arrived
				giveBack(t, must(t)(b.Semaphore("k", 10).TryLock(t.Context())))
			})
		})
	}
}

func TestTryDo_SkipsWhatOthersDo(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		ctx := t.Context()
		ran, err := leasehold.TryDo(ctx, a.Mutex("k"), func(ctx context.Context) error {
			l, ok := leasehold.FromContext(ctx)
			if !ok || l.Token() == 0 || l.Owner() == "" {
				t.Errorf("lease %v, %v", l, ok)
			}
			ran, err := leasehold.TryDo(ctx, b.Mutex("k"), func(context.Context) error { t.Error("ran"); return nil })
			if ran || err != nil {
				t.Errorf("second: ran %v, %v", ran, err)
			}
			return errors.ErrUnsupported
		})
		if !ran || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("first: ran %v, %v", ran, err)
		}
	})
}

func TestDo_TellsALossOnce(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		err := leasehold.Do(t.Context(), a.Mutex("k"), func(ctx context.Context) error {
			l, _ := leasehold.FromContext(ctx)
			if err := b.Break(t.Context(), "k", l.ID(), "over"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, leasehold.ErrBroken) || strings.Count(err.Error(), "over") != 1 || !strings.HasPrefix(err.Error(), `leasehold: lock "k": `) {
			t.Errorf("got %q", err)
		}
	})
}

func TestHeldError_SaysWhenTheLockIsOnlyClosed(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		ctx := t.Context()
		giveBack(t, must(t)(a.Mutex("k", leasehold.WithMinHold(time.Minute)).Lock(ctx)))
		_, err := b.Mutex("k").TryLock(ctx)
		var held *leasehold.HeldError
		if !errors.As(err, &held) || !held.Closed || held.Remaining != time.Minute {
			t.Errorf("got %v, %+v", err, held)
		}
	})
}

func TestWithName_IsNoIdentity(t *testing.T) {
	kindsBubble(t, func(t *testing.T, a, b *leasehold.Client) {
		name := leasehold.WithName("host-1")
		l := must(t)(a.Mutex("k", name).Lock(t.Context()))
		second, err := b.Mutex("k", name).TryLock(t.Context())
		refused(t, second, err, leasehold.ErrHeld)
		giveBack(t, l)
	})
}
func TestBreak_IsKnownAtOnceInTheSameProcess(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		holder, d := open(t, store)
		operator, err := leasehold.New(breakable{newFault(store), store})
		if err != nil {
			t.Fatal(err)
		}
		defer operator.Close()
		l := lock(t, holder, "k")
		if err := operator.Break(t.Context(), "k", l.ID(), "maintenance"); err != nil {
			t.Fatal(err)
		}
		if l.Context().Err() == nil || d.count(renew) != 0 {
			t.Errorf("not known at once, after %d renewals", d.count(renew))
		}
		if cause := context.Cause(l.Context()); !strings.Contains(cause.Error(), "maintenance") || !errors.Is(cause, leasehold.ErrLost) {
			t.Errorf("cause %v", cause)
		}
	})
}
