package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/memdriver"
)

// A lease makes its context when somebody asks for it: when that is makes no difference
// to what it tells.
func TestLease_ContextThatIsAskedForLateTellsTheSame(t *testing.T) {
	type scene struct {
		store        *memdriver.Driver
		client       *leasehold.Client
		cancel       context.CancelCauseFunc
		outer, inner *leasehold.Lease // inner re-entered
	}
	why := errors.New("no more")
	for name, end := range map[string]func(t *testing.T, s *scene){
		"nothing":  func(*testing.T, *scene) {},
		"released": func(_ *testing.T, s *scene) { _ = s.outer.Release(); _ = s.inner.Release() },
		"released inside": func(_ *testing.T, s *scene) {
			_ = s.inner.Release()
		},
		"released, and then the parent ended": func(_ *testing.T, s *scene) {
			_ = s.inner.Release()
			_ = s.outer.Release()
			s.cancel(why)
		},
		"parent ended": func(_ *testing.T, s *scene) { s.cancel(why) },
		"parent ended, and then released": func(_ *testing.T, s *scene) {
			s.cancel(why)
			_ = s.inner.Release()
			_ = s.outer.Release()
		},
		"parent's deadline": func(*testing.T, *scene) { time.Sleep(4 * ttl) },
		"broken": func(t *testing.T, s *scene) {
			if _, err := s.store.Break(t.Context(), "k", s.outer.ID(), "stuck"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ttl / 2)
		},
		"broken, and then the parent ended": func(t *testing.T, s *scene) {
			if _, err := s.store.Break(t.Context(), "k", s.outer.ID(), "stuck"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ttl / 2)
			s.cancel(why)
		},
		"the store no longer has it": func(t *testing.T, s *scene) {
			if _, err := s.store.Release(t.Context(), driver.Ref{Key: "k", ID: s.outer.ID()}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ttl / 2)
		},
		"its deadline passed": func(*testing.T, *scene) { clock.Advance(ttl) },
		"its deadline passed, and then the parent ended": func(_ *testing.T, s *scene) {
			clock.Advance(ttl)
			s.cancel(why)
		},
		"client closed": func(_ *testing.T, s *scene) { _ = s.client.Close() },
		"maximum":       func(*testing.T, *scene) { time.Sleep(3 * ttl) },
		"detached": func(t *testing.T, s *scene) {
			_ = s.inner.Release()
			if err := s.outer.Detach(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tells := func(early bool) (told [2]string) {
				bubble(t, func(t *testing.T, store *memdriver.Driver) {
					c, _ := open(t, store, leasehold.WithTTL(ttl), leasehold.WithMaxHold(2*ttl))
					if name == "parent's deadline" {
						c, _ = open(t, store, leasehold.WithTTL(ttl))
					}
					deadline, stop := context.WithTimeout(t.Context(), 7*ttl/2)
					defer stop()
					parent, cancel := context.WithCancelCause(deadline)
					defer cancel(nil)
					outer, err := c.Mutex("k").Lock(parent)
					if err != nil {
						t.Fatal(err)
					}
					inner, err := c.Mutex("k").Lock(outer.Context())
					if err != nil {
						t.Fatal(err)
					}
					if early {
						outer.Context().Done()
						inner.Context().Done()
					}
					end(t, &scene{store, c, cancel, outer, inner})
					for i, l := range []*leasehold.Lease{outer, inner} {
						ctx := l.Context()
						told[i] = fmt.Sprintf("%v, because of %v; %v", ctx.Err(), context.Cause(ctx), l.State())
						select {
						case <-ctx.Done():
							told[i] += ", done"
						default:
						}
					}
					_ = inner.Release()
					_ = outer.Release()
				})
				return told
			}
			if early, late := tells(true), tells(false); late != early {
				t.Errorf("asked at once it tells %q, asked late %q", early, late)
			}
		})
	}
}

// TestLease_ContextIsOneHoweverManyAsk, while the lease or its parent ends.
func TestLease_ContextIsOneHoweverManyAsk(t *testing.T) {
	for name, end := range map[string]func(l *leasehold.Lease, cancel func()){
		"released":     func(l *leasehold.Lease, _ func()) { _ = l.Release() },
		"parent ended": func(_ *leasehold.Lease, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				bubble(t, func(t *testing.T, store *memdriver.Driver) {
					c, _ := open(t, store)
					parent, cancel := context.WithCancel(t.Context())
					defer cancel()
					l, err := c.Mutex("k").Lock(parent)
					if err != nil {
						t.Fatal(err)
					}
					var wg sync.WaitGroup
					dones := make([]<-chan struct{}, 8)
					for i := range dones {
						wg.Go(func() { dones[i] = l.Context().Done() })
					}
					wg.Go(func() { end(l, cancel) })
					wg.Wait()
					for _, done := range dones {
						<-done
						if done != dones[0] {
							t.Fatal("two contexts")
						}
					}
					synctest.Wait()
					if l.Context().Err() == nil {
						t.Error("it has not ended")
					}
					giveBack(t, l)
				})
			}
		})
	}
}

// nosy is a context that has somebody look around while it is looked at.
type nosy struct {
	context.Context
	look func()
}

func (n *nosy) Done() <-chan struct{} {
	if look := n.look; look != nil {
		n.look = nil
		look()
	}
	return n.Context.Done()
}

// The same in steps: a second one asks while the first is being served, whose parent is
// then looked at.
func TestLease_ContextIsOneIfItIsAskedForWhileItIsMade(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		parent := &nosy{Context: t.Context()}
		l, err := c.Mutex("k").Lock(parent)
		if err != nil {
			t.Fatal(err)
		}
		var second <-chan struct{}
		parent.look = func() { second = l.Context().Done() }
		if first := l.Context().Done(); second == nil || first != second {
			t.Errorf("two contexts: %v, %v", first, second)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		<-second
	})
}

func TestLease_ContextThatIsMadeWhileTheLeaseEndsHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		parent := &nosy{Context: t.Context()}
		l, err := c.Mutex("k").Lock(parent)
		if err != nil {
			t.Fatal(err)
		}
		parent.look = func() {
			if err := l.Release(); err != nil {
				t.Error(err)
			}
		}
		select {
		case <-l.Context().Done():
			wantErr(t, context.Cause(l.Context()), leasehold.ErrReleased)
		default:
			t.Error("it is live")
		}
	})
}
