package quorumdriver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
)

// asker asks one quorum about one key, and fails the test on an error.
type asker struct {
	testing.TB
	s *quorumdriver.Driver
}

const ttl = 10 * time.Second

func (a asker) acquire(id string, want driver.State, opts ...func(*driver.Request)) driver.Reply {
	a.Helper()
	req := driver.Request{Key: "k", ID: id, TTL: ttl, ConfirmWindow: time.Second}
	for _, opt := range opts {
		opt(&req)
	}
	reply, err := a.s.Acquire(context.Background(), req)
	if err != nil || reply.State != want {
		a.Fatalf("acquire %s: %+v, %v; want state %d", id, reply, err, want)
	}
	return reply
}

// inBubble plays f in virtual time, on the quorum of n servers.
func inBubble(t *testing.T, n int, f func(t *testing.T, all []*server, a asker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := servers(n)
		f(t, all, asker{t, quorumOf(t, all)})
	})
}

// begun lets the quorum compare the marks of its nodes, as before its first lock, and
// returns the asker.
func (a asker) begun() asker {
	a.Helper()
	a.acquire("before", driver.Granted)
	a.release("before", driver.Released)
	synctest.Wait()
	return a
}

func (a asker) renew(id string) (reply driver.Reply, err error) {
	a.s.Renew(context.Background(), []driver.Ref{{Key: "k", ID: id, TTL: ttl}}, func(_ int, r driver.Reply, e error) { reply, err = r, e })
	return reply, err
}

func (a asker) renewed(id string, want driver.State) driver.Reply {
	a.Helper()
	reply, err := a.renew(id)
	if err != nil || reply.State != want {
		a.Fatalf("renew %s: %+v, %v; want state %d", id, reply, err, want)
	}
	return reply
}

func (a asker) release(id string, want driver.State) {
	a.Helper()
	reply, err := a.s.Release(context.Background(), driver.Ref{Key: "k", ID: id})
	if err != nil || reply.State != want {
		a.Fatalf("release %s: %+v, %v; want state %d", id, reply, err, want)
	}
}

// inside returns the ids of the holders at the server.
func (s *server) inside(t testing.TB) (ids []string) {
	t.Helper()
	snap, err := s.store.Inspect(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range snap.Holders {
		ids = append(ids, h.ID)
	}
	return ids
}

func wantInside(t testing.TB, s *server, want ...string) {
	t.Helper()
	if got := s.inside(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("inside are %v, want %v", got, want)
	}
}

func TestQuorum_Q1_WorksExactlyWithAMajority(t *testing.T) {
	const n = 5
	for how, fail := range map[string]func(*server){
		"dead": (*server).kill,
		"hung": (*server).stop,
	} {
		for mask := range 1 << n {
			t.Run(fmt.Sprintf("%s %05b", how, mask), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					all, up := servers(n), n
					a := asker{t, quorumOf(t, all)}
					a.acquire("before", driver.Granted)
					synctest.Wait()
					for i, s := range all {
						if mask&(1<<i) != 0 {
							fail(s)
							defer s.cont()
							up--
						}
					}
					start := time.Now()
					if up > n/2 {
						a.renewed("before", driver.Granted)
						a.release("before", driver.Released)
						a.acquire("a", driver.Granted)
						a.acquire("b", driver.Busy)
						a.renewed("a", driver.Granted)
						a.release("a", driver.Released)
						if took := time.Since(start); took > 0 {
							t.Errorf("took %v: the call has waited for the slow nodes", took)
						}
						return
					}
					a.withoutMajority(n-up, how == "dead")
					for i, s := range all {
						if mask&(1<<i) == 0 {
							wantInside(t, s, "before")
						}
					}
				})
			})
		}
	}
}

// withoutMajority checks that all calls fail soon, and that the error names the nodes that
// do not answer.
func (a asker) withoutMajority(down int, dead bool) {
	a.Helper()
	start := time.Now()
	reply, acquired := a.s.Acquire(context.Background(), driver.Request{Key: "k", ID: "a", TTL: ttl})
	if reply.State == driver.Granted {
		a.Errorf("granted without a majority")
	}
	_, renewed := a.renew("before")
	for _, err := range []error{acquired, renewed} {
		if !errors.Is(err, driver.ErrNoQuorum) {
			a.Fatalf("%v, want ErrNoQuorum", err)
		}
		if named := strings.Count(err.Error(), "node "); named != down {
			a.Errorf("%d nodes of %d are named: %v", named, down, err)
		}
	}
	if dead != errors.Is(acquired, driver.ErrUnavailable) {
		a.Errorf("matches ErrUnavailable: %v; the error: %v", !dead, acquired)
	}
	limit := 2 * quorumdriver.DefaultTimeout
	if dead {
		limit = 0
	}
	if took := time.Since(start); took > limit {
		a.Errorf("took %v", took)
	}
}

func TestQuorum_Q1_TheLibraryTellsThatThereIsNoMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		c, err := leasehold.New(quorumOf(t, all))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all[0].kill()
		all[1].kill()
		for name, take := range map[string]func(context.Context) (*leasehold.Lease, error){
			"Lock": c.Mutex("k", leasehold.WithMaxOutage(0)).Lock, "TryLock": c.Mutex("k").TryLock,
		} {
			start := time.Now()
			_, err = take(t.Context())
			if !errors.Is(err, leasehold.ErrNoQuorum) || !errors.Is(err, leasehold.ErrUnavailable) || errors.Is(err, leasehold.ErrHeld) {
				t.Errorf("%s: %v, want ErrNoQuorum", name, err)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("%s took %v", name, took)
			}
		}
		all[0].restart(false)
		lease, err := c.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		all[0].kill()
		start := time.Now()
		<-lease.Context().Done()
		if cause := context.Cause(lease.Context()); !errors.Is(cause, leasehold.ErrLost) || !errors.Is(cause, leasehold.ErrNoQuorum) {
			t.Errorf("lost because of %v", cause)
		}
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("lost after %v", took)
		}
	})
}

func TestQuorum_Q2_ANodeThatNeverAnswersCostsNothing(t *testing.T) {
	for name, opts := range map[string][]quorumdriver.Option{"fenced": nil, "unfenced": {quorumdriver.WithoutFencing()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(3)
				a := asker{t, quorumOf(t, all, opts...)}
				all[2].stop()
				defer all[2].cont()
				a.acquire("first", driver.Granted)
				a.release("first", driver.Released)
				start := time.Now()
				for i := range 1000 {
					id := fmt.Sprint("a", i)
					a.acquire(id, driver.Granted)
					a.renewed(id, driver.Granted)
					a.release(id, driver.Released)
				}
				if took := time.Since(start); took > 0 {
					t.Errorf("1000 pairs took %v", took)
				}
			})
		})
	}
}

func TestQuorum_Q2_ANodeThatNeverAnswersCollectsNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		hung := &ignorant{client: client{all[2]}}
		s := open(t, []driver.Driver{client{all[0]}, client{all[1]}, hung})
		a := asker{t, s}
		all[2].stop()
		for i := range 2000 {
			id := fmt.Sprint("a", i)
			a.acquire(id, driver.Granted)
			a.release(id, driver.Released)
			time.Sleep(time.Millisecond)
		}
		// About one call in each millisecond until the node counts as hung, and then one at a
		// time.
		if most := hung.most(); most > 250 {
			t.Errorf("%d calls were under way at the node at once", most)
		}
		if now := hung.now(); now > 250 {
			t.Errorf("%d calls are under way at the node", now)
		}
		all[2].cont()
		synctest.Wait()
		if now := hung.now(); now != 0 {
			t.Errorf("%d calls have stayed", now)
		}
		time.Sleep(quorumdriver.DefaultTimeout)
		a.acquire("last", driver.Granted)
		synctest.Wait()
		wantInside(t, all[2], "last")
	})
}

// ignorant ignores the context, as a user's own driver may do.
type ignorant struct {
	client
	mu          sync.Mutex
	calls, peak int
}

func (d *ignorant) count(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls += n
	d.peak = max(d.peak, d.calls)
}

func (d *ignorant) now() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

func (d *ignorant) most() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.peak
}

func (d *ignorant) Acquire(_ context.Context, req driver.Request) (driver.Reply, error) {
	d.count(1)
	defer d.count(-1)
	return d.client.Acquire(context.Background(), req)
}

func (d *ignorant) Release(_ context.Context, ref driver.Ref) (driver.Reply, error) {
	d.count(1)
	defer d.count(-1)
	return d.client.Release(context.Background(), ref)
}

func (d *ignorant) Renew(_ context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	d.count(1)
	defer d.count(-1)
	d.client.Renew(context.Background(), refs, each)
}

func TestQuorum_Q3_AnAcquireThatTookLongerThanTheLeaseHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		a := asker{t, quorumOf(t, all, quorumdriver.WithTimeout(time.Minute))}
		for _, s := range all[1:] {
			s.delay(600 * time.Millisecond)
		}
		start := time.Now()
		reply, err := a.s.Acquire(t.Context(), driver.Request{Key: "k", ID: "a", TTL: time.Second})
		if reply.State == driver.Granted || !errors.Is(err, driver.ErrNoQuorum) {
			t.Fatalf("%+v, %v after %v; want ErrNoQuorum", reply, err, time.Since(start))
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("took %v", took)
		}
		time.Sleep(5 * time.Second) // for the releases at the slow nodes
		for _, s := range all {
			wantInside(t, s)
		}
		for _, s := range all {
			s.delay(0)
		}
		a.acquire("b", driver.Granted)
	})
}

func TestQuorum_Q4_SplitVotesEnd(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 6} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(n)
				for i, s := range all {
					s.slow = time.Duration(i+1) * time.Millisecond // so that votes split
				}
				const contenders, turns = 12, 5
				start := time.Now()
				var inside, entries int
				var mu sync.Mutex
				var crowd sync.WaitGroup
				for range contenders {
					c, err := leasehold.New(quorumOf(t, all))
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = c.Close() })
					crowd.Go(func() {
						for range turns {
							err := leasehold.Do(context.Background(), c.Mutex("k"), func(context.Context) error {
								mu.Lock()
								inside++
								entries++
								if inside > 1 {
									t.Errorf("%d holders at once", inside)
								}
								mu.Unlock()
								time.Sleep(time.Millisecond)
								mu.Lock()
								inside--
								mu.Unlock()
								return nil
							})
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
				crowd.Wait()
				took := time.Since(start)
				t.Logf("%d entries in %v", entries, took)
				if entries != contenders*turns || took > contenders*turns*time.Second {
					t.Errorf("%d entries in %v", entries, took)
				}
			})
		})
	}
}

func TestQuorum_Q4_OneOfSeveralWhoTryAtOnceGetsAFreeLock(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			const rounds = 50
			served := 0
			for range rounds {
				synctest.Test(t, func(t *testing.T) {
					all := servers(n)
					for i, s := range all {
						s.slow = time.Duration(i+1) * 100 * time.Microsecond
					}
					granted := make(chan bool, 3)
					for i := range cap(granted) {
						s := quorumOf(t, all)
						go func() {
							reply, err := s.Acquire(context.Background(), driver.Request{Key: "k", ID: fmt.Sprint("a", i), TTL: ttl})
							if err != nil {
								t.Error(err)
							}
							granted <- reply.State == driver.Granted
						}()
					}
					for range cap(granted) {
						if <-granted {
							served++
						}
					}
				})
			}
			if served > rounds || served < rounds*8/10 {
				t.Errorf("of %d rounds one was served in %d", rounds, served)
			}
		})
	}
}

func TestQuorum_Q5_ANodeThatCameBackEmptyIsJoinedAgainByARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		const maxTTL, skew = 30 * time.Second, time.Second
		a := asker{t, quorumOf(t, all, quorumdriver.WithMaxTTL(maxTTL), quorumdriver.WithMaxSkew(skew))}
		first := a.acquire("a", driver.Granted)
		synctest.Wait()
		all[2].kill()
		all[2].restart(true)
		start := time.Now()
		for len(all[2].inside(t)) == 0 {
			if reply := a.renewed("a", driver.Granted); reply.Token != first.Token {
				t.Fatalf("token %d, then %d", first.Token, reply.Token)
			}
			time.Sleep(time.Second)
			if time.Since(start) > 2*time.Minute {
				t.Fatal("the node has not been joined again")
			}
		}
		if took := time.Since(start); took < maxTTL+2*skew {
			t.Errorf("the node was trusted after %v, before all leases that it may have forgotten had expired", took)
		}
		if snap, _ := all[2].store.Inspect(t.Context(), "k"); snap.Holders[0].Token < first.Token {
			t.Errorf("it joined with token %d, below %d", snap.Holders[0].Token, first.Token)
		}
		// It replaces another node that is lost.
		all[0].kill()
		a.renewed("a", driver.Granted)
		a.acquire("b", driver.Busy)
		a.release("a", driver.Released)
		wantInside(t, all[2])
	})
}

func TestQuorum_Q5_NothingIsJoinedAgainWithoutAMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		// The node is trusted at once, so that only the rule excludes it.
		a := asker{t, quorumOf(t, all, quorumdriver.WithoutGuard())}
		a.acquire("a", driver.Granted)
		synctest.Wait()
		for _, s := range all[1:] {
			s.kill()
			s.restart(true)
		}
		for range 3 {
			if reply, err := a.renew("a"); err != nil || reply.State != driver.Gone {
				t.Fatalf("%+v, %v; want Gone", reply, err)
			}
			time.Sleep(time.Second)
		}
		for _, s := range all {
			wantInside(t, s) // its remaining votes are released, too
		}
		a.acquire("b", driver.Granted)
	})
}

func TestQuorum_Q5_AReleaseComesAfterWhatHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		a := asker{t, quorumOf(t, all, quorumdriver.WithoutGuard())}
		a.acquire("a", driver.Granted)
		synctest.Wait()
		all[2].kill()
		all[2].restart(true)
		all[2].delay(100 * time.Millisecond)
		a.renewed("a", driver.Granted)
		time.Sleep(250 * time.Millisecond) // the node has answered Gone, and is asked again
		a.release("a", driver.Released)
		time.Sleep(time.Second)
		for _, s := range all {
			wantInside(t, s)
		}
	})
}

// If a majority does not answer a downgrade, its outcome is unknown. The lease is exclusive
// or shared, and does not end earlier.
func TestQuorum_HR_A3_ADowngradeWithNodesAwayEndsNoLease(t *testing.T) {
	for name, away := range map[string]func(*server){"dead": (*server).kill, "hung": (*server).stop} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(3)
				c, err := leasehold.New(quorumOf(t, all))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				l, err := c.RWMutex("k").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				away(all[0])
				all[1].stop()
				if err := l.Downgrade(t.Context()); err == nil {
					t.Error("downgraded by one of three")
				}
				all[1].cont()
				synctest.Wait()
				if err := l.Downgrade(t.Context()); err != nil {
					t.Errorf("with one node away: %v", err)
				}
				if l.State() == leasehold.Lost {
					t.Fatalf("lost: %v", context.Cause(l.Context()))
				}
				r, err := c.RWMutex("k").TryRLock(t.Context())
				if err != nil {
					t.Fatalf("no other reader is granted: %v", err)
				}
				time.Sleep(time.Minute)
				if l.State() != leasehold.Held || r.State() != leasehold.Held {
					t.Errorf("a minute later: %v, %v", l.State(), r.State())
				}
				if err := errors.Join(r.Release(), l.Release()); err != nil {
					t.Error(err)
				}
				all[0].restart(false)
				all[0].cont()
			})
		})
	}
}

// Each node has its own tokens: a node that was away at the grant gave the lease a greater
// token later.
func TestQuorum_HR_A3_ADowngradeKeepsTheLeaseWhoeverAnswersIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		c, err := leasehold.New(quorumOf(t, all))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ahead := driver.Request{Key: "k", ID: "before", TTL: time.Second, MinToken: time.Now().Add(time.Hour).UnixMicro()}
		if _, err := all[2].store.Acquire(t.Context(), ahead); err != nil {
			t.Fatal(err)
		}
		if _, err := all[2].store.Release(t.Context(), driver.Ref{Key: "k", ID: "before"}); err != nil {
			t.Fatal(err)
		}
		all[2].stop()
		l, err := c.RWMutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all[2].cont()
		synctest.Wait()
		token := l.Token()
		all[0].kill()
		if err := l.Downgrade(t.Context()); err != nil {
			t.Errorf("downgrade with one node away: %v", err)
		}
		if l.State() != leasehold.Held || l.Token() != token {
			t.Errorf("%v with token %d, had %d: %v", l.State(), l.Token(), token, context.Cause(l.Context()))
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
		all[0].restart(false)
	})
}

// A node that had forgotten the lease has granted it again with a greater token. A client
// that takes the lease over may receive that token.
func TestQuorum_HR_B4_ATokenThatWasToldDoesNotFallWhereALeaseIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		var clients [2]*leasehold.Client
		for i := range clients {
			var err error
			if clients[i], err = leasehold.New(quorumOf(t, all)); err != nil {
				t.Fatal(err)
			}
			defer clients[i].Close()
		}
		for i := range 30 {
			key := fmt.Sprint("k", i)
			all[0].kill()
			l, err := clients[0].Mutex(key).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			all[0].restart(false)
			for turn := 1; turn <= 2; turn++ {
				before := l.Token()
				if err := l.Detach(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if l, err = clients[turn%2].Mutex(key).Adopt(t.Context(), l.ID()); err != nil {
					t.Fatal(err)
				}
				if l.Token() < before {
					t.Errorf("token %d, after token %d", l.Token(), before)
				}
			}
			if err := l.Release(); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
	})
}

// A downgrade moves the end of a lease as a renewal does: a renewal after the first end still
// gives the lease to a node that has forgotten it.
func TestDowngrade_P3_MovesTheEndOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		a := asker{t, quorumOf(t, all, quorumdriver.WithMaxTTL(30*time.Second), quorumdriver.WithMaxSkew(time.Second))}
		a.acquire("a", driver.Granted)
		time.Sleep(ttl - time.Second)
		a.acquire("a", driver.Granted, func(r *driver.Request) { r.Mode, r.Downgrade = driver.Shared, true })
		time.Sleep(ttl / 2) // behind the first end
		all[2].kill()
		all[2].restart(true)
		start := time.Now()
		for len(all[2].inside(t)) == 0 {
			a.renewed("a", driver.Granted)
			time.Sleep(time.Second)
			if time.Since(start) > 2*time.Minute {
				t.Fatal("the node has not been joined again")
			}
		}
		a.release("a", driver.Released)
	})
}
