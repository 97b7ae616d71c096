package quorumdriver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
)

// asker asks one quorum about one key, and fails the test on an error.
type asker struct {
	testing.TB
	s *quorumdriver.Driver
}

const ttl = 10 * time.Second

// open returns a quorum of the nodes, which is closed at the end of the test.
func open(t testing.TB, nodes []driver.Driver, opts ...quorumdriver.Option) asker {
	t.Helper()
	s, err := quorumdriver.New(nodes, opts...)
	noError(t, err)
	t.Cleanup(func() { noError(t, s.Close()) })
	return asker{t, s}
}

// quorumOf returns another process's quorum of the servers.
func quorumOf(t testing.TB, all []*server, opts ...quorumdriver.Option) asker {
	t.Helper()
	var nodes []driver.Driver
	for _, s := range all {
		nodes = append(nodes, s.client())
	}
	return open(t, nodes, opts...)
}

// clientOf returns a client of a quorum, which is closed at the end of the test.
func clientOf(t testing.TB, a asker) *leasehold.Client {
	t.Helper()
	c, err := leasehold.New(a.s)
	noError(t, err)
	t.Cleanup(func() { noError(t, c.Close()) })
	return c
}

// inBubble plays f in virtual time, on a quorum of n servers.
func inBubble(t *testing.T, n int, f func(t *testing.T, all []*server, a asker), opts ...quorumdriver.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := servers(n)
		f(t, all, quorumOf(t, all, opts...))
	})
}

// begun lets the quorum compare the marks of its nodes, as before its first lock, and
// returns the asker.
func (a asker) begun() asker {
	a.Helper()
	a.acquire("before", driver.Granted)
	synctest.Wait() // until all nodes have granted it: a release overtakes requests that wait
	a.release("before", driver.Released)
	synctest.Wait()
	return a
}

// option changes a request.
type option func(*driver.Request)

// waits makes a request one of a waiter.
func waits(r *driver.Request) { r.TicketTTL = time.Minute }

// downgrades makes a request a downgrade.
func downgrades(r *driver.Request) { r.Downgrade, r.Mode = true, driver.Shared }

// visit sets the visit of a request.
func visit(name string) option { return func(r *driver.Request) { r.Visit = name } }

// lasting sets the TTL of a request.
func lasting(d time.Duration) option { return func(r *driver.Request) { r.TTL = d } }

// ask acquires the lock, and returns the answer. It may be called when the test has ended.
func (a asker) ask(ctx context.Context, id string, opts ...option) (driver.Reply, error) {
	req := driver.Request{Key: "k", ID: id, TTL: ttl, ConfirmWindow: time.Second}
	for _, opt := range opts {
		opt(&req)
	}
	return a.s.Acquire(ctx, req)
}

// wants fails the test unless an answer has a state.
func (a asker) wants(what string, reply driver.Reply, err error, want driver.State) driver.Reply {
	a.Helper()
	if err != nil || reply.State != want {
		a.Fatalf("%s: %+v, %v; want state %d", what, reply, err, want)
	}
	return reply
}

func (a asker) acquire(id string, want driver.State, opts ...option) driver.Reply {
	a.Helper()
	reply, err := a.ask(context.Background(), id, opts...)
	return a.wants("acquire "+id, reply, err, want)
}

func (a asker) renew(id string) (reply driver.Reply, err error) {
	a.s.Renew(context.Background(), []driver.Ref{{Key: "k", ID: id, TTL: ttl}}, func(_ int, r driver.Reply, e error) { reply, err = r, e })
	return reply, err
}

func (a asker) renewed(id string, want driver.State) driver.Reply {
	a.Helper()
	reply, err := a.renew(id)
	return a.wants("renew "+id, reply, err, want)
}

func (a asker) release(id string, want driver.State) {
	a.Helper()
	a.undo(id, "", want)
}

// undo releases the lease of a visit.
func (a asker) undo(id, visit string, want driver.State) {
	a.Helper()
	reply, err := a.s.Release(context.Background(), driver.Ref{Key: "k", ID: id, Visit: visit})
	a.wants("release "+id, reply, err, want)
}

func (a asker) breaks(id string, want driver.State) {
	a.Helper()
	reply, err := a.s.Break(a.Context(), "k", id, "for a reason")
	a.wants("break "+id, reply, err, want)
}

func TestQuorum_Q1_WorksExactlyWithAMajority(t *testing.T) {
	const n = 5
	for how, fail := range map[string]func(*server){
		"dead": (*server).kill,
		"hung": (*server).stop,
	} {
		for mask := range 1 << n {
			t.Run(fmt.Sprintf("%s %05b", how, mask), func(t *testing.T) {
				inBubble(t, n, func(t *testing.T, all []*server, a asker) {
					up := n
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
					for i := range all {
						if mask&(1<<i) == 0 {
							wantInside(t, all[i:i+1], "before")
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
	reply, acquired := a.ask(context.Background(), "a")
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
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		c := clientOf(t, a)
		all[0].kill()
		all[1].kill()
		for name, take := range map[string]func(context.Context) (*leasehold.Lease, error){
			"Lock": c.Mutex("k", leasehold.WithMaxOutage(0)).Lock, "TryLock": c.Mutex("k").TryLock,
		} {
			start := time.Now()
			_, err := take(t.Context())
			if !errors.Is(err, leasehold.ErrNoQuorum) || !errors.Is(err, leasehold.ErrUnavailable) || errors.Is(err, leasehold.ErrHeld) {
				t.Errorf("%s: %v, want ErrNoQuorum", name, err)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("%s took %v", name, took)
			}
		}
		all[0].restart(false)
		lease := locked(t, c.Mutex("k"))
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

// locked locks, and fails the test on an error.
func locked(t *testing.T, l leasehold.Locker) *leasehold.Lease {
	t.Helper()
	lease, err := l.Lock(t.Context())
	noError(t, err)
	return lease
}

func TestQuorum_Q2_ANodeThatNeverAnswersCostsNoTimeAndCollectsNoGoroutines(t *testing.T) {
	for name, opts := range map[string][]quorumdriver.Option{"fenced": nil, "unfenced": {quorumdriver.WithoutFencing()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(3)
				hung := new(ignorant)
				a := open(t, []driver.Driver{all[0].client(), all[1].client(), hung.on(all[2])}, opts...)
				all[2].stop()
				a.acquire("first", driver.Granted)
				a.release("first", driver.Released)
				for i := range 2000 {
					id, start := fmt.Sprint("a", i), time.Now()
					a.acquire(id, driver.Granted)
					a.renewed(id, driver.Granted)
					a.release(id, driver.Released)
					if took := time.Since(start); took > 0 {
						t.Errorf("took %v: the call has waited for the node", took)
					}
					time.Sleep(time.Millisecond)
				}
				// About one call in each millisecond until the node counts as hung, and then one at a
				// time.
				if most := hung.most.Load(); most > 250 {
					t.Errorf("%d calls were under way at the node at once", most)
				}
				if now := hung.now.Load(); now > 250 {
					t.Errorf("%d calls are under way at the node", now)
				}
				all[2].cont()
				synctest.Wait()
				if now := hung.now.Load(); now != 0 {
					t.Errorf("%d calls have stayed", now)
				}
				time.Sleep(quorumdriver.DefaultTimeout)
				a.acquire("last", driver.Granted)
				synctest.Wait()
				wantInside(t, all[2:], "last")
			})
		})
	}
}

// ignorant is a node that ignores the context, as a user's own driver may do, and counts the calls under way.
type ignorant struct{ now, most atomic.Int64 }

func (n *ignorant) on(s *server) driver.Driver { return intercept.New(s.client(), n.through) }

func (n *ignorant) through(_ context.Context, _ *intercept.Message, send func(context.Context) error) error {
	now := n.now.Add(1)
	for most := n.most.Load(); now > most && !n.most.CompareAndSwap(most, now); most = n.most.Load() {
	}
	defer n.now.Add(-1)
	return send(context.Background())
}

func TestQuorum_Q3_AnAcquireThatTookLongerThanTheLeaseHoldsNothing(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		for _, s := range all[1:] {
			s.delay(600 * time.Millisecond)
		}
		start := time.Now()
		reply, err := a.ask(t.Context(), "a", lasting(time.Second))
		if reply.State == driver.Granted || !errors.Is(err, driver.ErrNoQuorum) {
			t.Fatalf("%+v, %v after %v; want ErrNoQuorum", reply, err, time.Since(start))
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("took %v", took)
		}
		time.Sleep(5 * time.Second) // for the releases at the slow nodes
		wantInside(t, all)
		for _, s := range all {
			s.delay(0)
		}
		a.acquire("b", driver.Granted)
	}, quorumdriver.WithTimeout(time.Minute))
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
				var inside, entries atomic.Int64
				var crowd sync.WaitGroup
				for range contenders {
					c := clientOf(t, quorumOf(t, all))
					crowd.Go(func() {
						for range turns {
							err := leasehold.Do(context.Background(), c.Mutex("k"), func(context.Context) error {
								entries.Add(1)
								if now := inside.Add(1); now > 1 {
									t.Errorf("%d holders at once", now)
								}
								time.Sleep(time.Millisecond)
								inside.Add(-1)
								return nil
							})
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
				crowd.Wait()
				if took := time.Since(start); entries.Load() != contenders*turns || took > contenders*turns*time.Second {
					t.Errorf("%d entries in %v", entries.Load(), took)
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
						a := quorumOf(t, all)
						go func() {
							reply, err := a.ask(context.Background(), fmt.Sprint("a", i))
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

// joined renews the lease "a" until the server has it again, and returns how long that took.
func (a asker) joined(t *testing.T, s *server, token int64) time.Duration {
	t.Helper()
	start := time.Now()
	for len(s.inside(t)) == 0 {
		if reply := a.renewed("a", driver.Granted); reply.Token != token {
			t.Fatalf("token %d, then %d", token, reply.Token)
		}
		time.Sleep(time.Second)
		if time.Since(start) > 2*time.Minute {
			t.Fatal("the node has not been joined again")
		}
	}
	return time.Since(start)
}

func TestQuorum_Q5_ANodeThatCameBackEmptyIsJoinedAgainByARenewal(t *testing.T) {
	const maxTTL, skew = 30 * time.Second, time.Second
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		first := a.acquire("a", driver.Granted)
		synctest.Wait()
		all[2].lose()
		if took := a.joined(t, all[2], first.Token); took < maxTTL+2*skew {
			t.Errorf("the node was trusted after %v, before all leases that it may have forgotten had expired", took)
		}
		if token := all[2].inside(t)[0].Token; token < first.Token {
			t.Errorf("it joined with token %d, below %d", token, first.Token)
		}
		// It replaces another node that is lost.
		all[0].kill()
		a.renewed("a", driver.Granted)
		a.acquire("b", driver.Busy)
		a.release("a", driver.Released)
		wantInside(t, all[2:])
	}, quorumdriver.WithMaxTTL(maxTTL), quorumdriver.WithMaxSkew(skew))
}

// A downgrade moves the end of a lease as a renewal does: a renewal after the first end still
// gives the lease to a node that has forgotten it.
func TestDowngrade_P3_MovesTheEndOfALease(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		first := a.acquire("a", driver.Granted)
		time.Sleep(ttl - time.Second)
		a.acquire("a", driver.Granted, downgrades)
		time.Sleep(ttl / 2) // behind the first end
		all[2].lose()
		a.joined(t, all[2], first.Token)
		a.release("a", driver.Released)
	}, quorumdriver.WithMaxTTL(30*time.Second), quorumdriver.WithMaxSkew(time.Second))
}

func TestQuorum_Q5_NothingIsJoinedAgainWithoutAMajority(t *testing.T) {
	// The node is trusted at once, so that only the rule excludes it.
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		a.acquire("a", driver.Granted)
		synctest.Wait()
		all[1].lose()
		all[2].lose()
		for range 3 {
			a.renewed("a", driver.Gone)
			time.Sleep(time.Second)
		}
		wantInside(t, all) // its remaining votes are released, too
		a.acquire("b", driver.Granted)
	}, quorumdriver.WithoutGuard())
}

func TestQuorum_Q5_AReleaseComesAfterWhatHeals(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		a.acquire("a", driver.Granted)
		synctest.Wait()
		all[2].lose()
		all[2].delay(100 * time.Millisecond)
		a.renewed("a", driver.Granted)
		time.Sleep(250 * time.Millisecond) // the node has answered Gone, and is asked again
		all[2].delay(0)                    // a release that is sent now arrives first
		a.release("a", driver.Released)
		time.Sleep(time.Second)
		wantInside(t, all)
	}, quorumdriver.WithoutGuard())
}

// If a majority does not answer a downgrade, its outcome is unknown. The lease is exclusive
// or shared, and does not end earlier.
func TestQuorum_HR_A3_ADowngradeWithNodesAwayEndsNoLease(t *testing.T) {
	for name, away := range map[string]func(*server){"dead": (*server).kill, "hung": (*server).stop} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
				c := clientOf(t, a)
				l := locked(t, c.RWMutex("k"))
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
				noError(t, errors.Join(r.Release(), l.Release()))
				all[0].restart(false)
				all[0].cont()
			})
		})
	}
}

// Each node has its own tokens: a node that was away at the grant gave the lease a greater
// token later.
func TestQuorum_HR_A3_ADowngradeKeepsTheLeaseWhoeverAnswersIt(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		ahead := driver.Request{Key: "k", ID: "before", TTL: time.Second, MinToken: time.Now().Add(time.Hour).UnixMicro()}
		_, err := all[2].store.Acquire(t.Context(), ahead)
		noError(t, err)
		all[2].free(t, "before")
		all[2].stop()
		l := locked(t, clientOf(t, a).RWMutex("k"))
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
		noError(t, l.Release())
		all[0].restart(false)
	})
}

// A node that had forgotten the lease has granted it again with a greater token. A client
// that takes the lease over may receive that token.
func TestQuorum_HR_B4_ATokenThatWasToldDoesNotFallWhereALeaseIsTakenOver(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		clients := []*leasehold.Client{clientOf(t, a), clientOf(t, quorumOf(t, all))}
		for i := range 30 {
			key := fmt.Sprint("k", i)
			all[0].kill()
			l := locked(t, clients[0].Mutex(key))
			time.Sleep(time.Second)
			all[0].restart(false)
			for turn := 1; turn <= 2; turn++ {
				before := l.Token()
				noError(t, l.Detach(t.Context()))
				synctest.Wait()
				var err error
				l, err = clients[turn%2].Mutex(key).Adopt(t.Context(), l.ID())
				noError(t, err)
				if l.Token() < before {
					t.Errorf("token %d, after token %d", l.Token(), before)
				}
			}
			noError(t, l.Release())
			synctest.Wait()
		}
	})
}

var noError = ask.NoError
