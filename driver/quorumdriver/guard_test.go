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
	"github.com/leasehold-go/leasehold/internal/test/intercept"
)

func TestGuard_NewNodesServeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := unmarked(3)
		var processes sync.WaitGroup
		for i := range 4 { // that begin at the same time
			a := quorumOf(t, all)
			processes.Go(func() {
				key := func(r *driver.Request) { r.Key = string(rune('a' + i)) }
				if reply, err := a.ask(context.Background(), "x", key); err != nil || reply.State != driver.Granted {
					t.Errorf("%+v, %v", reply, err)
				}
			})
		}
		processes.Wait()
		for i, s := range all {
			if left, ok := s.marked(t); left > 0 || !ok {
				t.Errorf("node %d: mark %v, in quarantine for %v", i+1, ok, left)
			}
		}
	})
}

// TestGuard_NewNodesServeAfterALostAnswer: two processes set the nodes up at the same time, and one of them
// does not get one answer, whichever it is.
func TestGuard_NewNodesServeAfterALostAnswer(t *testing.T) {
	for lost := range 20 {
		synctest.Test(t, func(t *testing.T) {
			all := unmarked(3)
			var messages atomic.Int64
			through := func(ctx context.Context, m *intercept.Message, send func(context.Context) error) error {
				err := send(ctx)
				if m.Verb != intercept.Close && messages.Add(1)-1 == int64(lost) {
					return errors.New("no answer")
				}
				return err
			}
			var suffering []driver.Driver
			for _, s := range all {
				suffering = append(suffering, intercept.New(s.client(), through))
			}
			var processes sync.WaitGroup
			for i, a := range []asker{open(t, suffering), quorumOf(t, all)} {
				mutex := clientOf(t, a).Mutex(fmt.Sprint(i), leasehold.WithMaxWait(15*time.Second))
				processes.Go(func() {
					if _, err := mutex.Lock(context.Background()); err != nil {
						t.Errorf("answer %d is lost, process %d: %v", lost, i+1, err)
					}
				})
			}
			processes.Wait()
		})
	}
}

// TestGuard_ANodeThatIsReservedKeepsAllUnmarked: a process that dies while it sets nodes up leaves one
// reserved. Until that ends no other process marks any node.
func TestGuard_ANodeThatIsReservedKeepsAllUnmarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := unmarked(3)
		if ok, err := all[0].store.Reserve(t.Context(), "another", time.Minute); !ok || err != nil {
			t.Fatal(ok, err)
		}
		a := quorumOf(t, all)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if reply, err := a.ask(ctx, "a"); err == nil {
			t.Errorf("%+v before the nodes are marked", reply)
		}
		for i, s := range all {
			if _, ok := s.marked(t); ok {
				t.Errorf("node %d is marked", i+1)
			}
		}
		time.Sleep(time.Minute)
		a.acquire("a", driver.Granted)
	})
}

// TestGuard_AForgottenVoteDoesNotCountTwice plays the reason for the guard: a majority holds a
// lease, and one of its nodes forgets it.
func TestGuard_AForgottenVoteDoesNotCountTwice(t *testing.T) {
	for name, c := range map[string]struct {
		opts []quorumdriver.Option
		want driver.State
	}{
		"guarded":   {nil, driver.Busy},
		"unguarded": {[]quorumdriver.Option{quorumdriver.WithoutGuard()}, driver.Granted}, // the test finds it
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, all []*server, a asker) {
				all[3].kill()
				all[4].kill()
				a.acquire("a", driver.Granted)
				synctest.Wait()
				all[2].kill()
				for _, s := range all[3:] {
					s.restart(false)
				}
				all[2].restart(true)
				reply, err := quorumOf(t, all, c.opts...).ask(t.Context(), "b")
				if reply.State != c.want {
					t.Errorf("%+v, %v while a holds it", reply, err)
				}
			}, c.opts...)
		})
	}
}

func TestGuard_ANodeThatForgotServesAfterItsQuarantine(t *testing.T) {
	const maxTTL, skew = time.Minute, 5 * time.Second
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		a.acquire("a", driver.Granted)
		a.release("a", driver.Released)
		synctest.Wait()
		all[0].lose()
		all[1].kill() // so that the vote of the node that lost its data is needed
		_, err := a.ask(t.Context(), "b")
		if !errors.Is(err, driver.ErrNoQuorum) || !strings.Contains(err.Error(), "node 1: store may have lost its data") {
			t.Fatalf("%v, want ErrNoQuorum with the reason", err)
		}
		left, ok := all[0].marked(t)
		if !ok || left < maxTTL+2*skew || left > maxTTL+2*skew+time.Second {
			t.Errorf("mark %v, in quarantine for %v", ok, left)
		}
		time.Sleep(left)
		a.acquire("c", driver.Granted)
	}, quorumdriver.WithMaxTTL(maxTTL), quorumdriver.WithMaxSkew(skew))
}

func TestGuard_EmptyNodesOfWhichNotAllAreReachedAreNotTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := unmarked(3)
		all[2].kill()
		a := quorumOf(t, all, quorumdriver.WithMaxTTL(time.Minute))
		if reply, err := a.ask(t.Context(), "a"); !errors.Is(err, driver.ErrNoQuorum) {
			t.Fatalf("%+v, %v", reply, err)
		}
		for i, s := range all[:2] {
			if left, ok := s.marked(t); left < time.Minute || !ok {
				t.Errorf("node %d: mark %v, in quarantine for %v", i+1, ok, left)
			}
		}
		time.Sleep(2 * time.Minute)
		a.acquire("a", driver.Granted)
	})
}

func TestGuard_LeasesLongerThanTheQuarantineAreRefused(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		long := driver.Request{Key: "k", ID: "a", TTL: 61 * time.Second}
		if err := driver.Supports(a.s, long); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "WithMaxTTL") {
			t.Errorf("%v", err)
		}
		if _, err := a.s.Acquire(t.Context(), long); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("acquire: %v", err)
		}
		a.acquire("a", driver.Granted)
		a.s.Renew(t.Context(), []driver.Ref{{Key: "k", ID: "a", TTL: time.Hour}}, func(_ int, _ driver.Reply, err error) {
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("renew: %v", err)
			}
		})
		a.renewed("a", driver.Granted)
		if err := driver.Supports(quorumOf(t, all, quorumdriver.WithoutGuard()).s, long); err != nil {
			t.Errorf("without the guard: %v", err)
		}
	}, quorumdriver.WithMaxTTL(time.Minute))
}
