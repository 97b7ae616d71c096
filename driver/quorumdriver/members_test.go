package quorumdriver_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
)

// refuses checks that the quorum grants no lock, and that its error contains says.
func (a asker) refuses(says string) {
	a.Helper()
	reply, err := a.ask(a.Context(), "other")
	if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), says) {
		a.Errorf("%+v, %v; want ErrInvalid with %q", reply, err, says)
	}
}

func TestMembers_HR_F11_ThreeAgainstFiveNodesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		first, then func([]*server) []*server
		says        string
	}{
		"five, then three":            {func(all []*server) []*server { return all }, func(all []*server) []*server { return all[:3] }, "one of 5 nodes of a quorum, but 3 are configured here"},
		"three, then five":            {func(all []*server) []*server { return all[:3] }, func(all []*server) []*server { return all }, "one of 3 nodes of a quorum, but 5 are configured here"},
		"three, then two new to them": {func(all []*server) []*server { return all[:3] }, func(all []*server) []*server { return append(all[3:5:5], all[1]) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := unmarked(5)
				quorumOf(t, c.first(all)).acquire("a", driver.Granted)
				synctest.Wait()
				second := quorumOf(t, c.then(all))
				if c.says != "" {
					second.refuses(c.says)
					second.refuses(c.says)
					return
				}
				reply, err := second.ask(t.Context(), "other")
				if err == nil && reply.State == driver.Granted {
					t.Errorf("%+v while a is held", reply)
				}
			})
		})
	}
}

// Processes that are configured with different nodes may start at the same time.
func TestMembers_HR_F11_TwoThatBeginTogetherAreNotBothServed(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			all := unmarked(5)
			granted := make(chan bool, 2)
			for _, a := range []asker{quorumOf(t, all[2:]), quorumOf(t, all)} {
				go func() {
					reply, err := a.ask(context.Background(), "a")
					granted <- err == nil && reply.State == driver.Granted
				}()
			}
			if one, other := <-granted, <-granted; one && other {
				t.Error("a quorum of three and one of five both granted the lock")
			}
		})
	}
}

func TestMembers_HR_F11_AServerThatIsNamedTwiceIsRefused(t *testing.T) {
	for _, name := range []string{"new", "marked by the others"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := unmarked(3)
				if name != "new" {
					quorumOf(t, all).begun()
				}
				quorumOf(t, []*server{all[0], all[1], {store: all[1].store}}).refuses("node 3 is the same store as node 2")
			})
		})
	}
}

// A node that is away at the beginning is compared when it is back.
func TestMembers_HR_F11_ANodeThatWasAwayIsComparedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := unmarked(3)
		quorumOf(t, all).begun()
		all[1].kill()
		same := server{store: all[0].store}
		same.kill()
		twice := quorumOf(t, []*server{all[0], &same, all[2]})
		twice.acquire("a", driver.Granted)
		twice.release("a", driver.Released)
		same.restart(false)
		time.Sleep(2 * time.Second)
		_, _ = twice.ask(t.Context(), "b") // makes the quorum compare again
		synctest.Wait()
		twice.refuses("node 2 is the same store as node 1")
	})
}

// After an operator has corrected the nodes and removed the marks, correctly configured
// processes go on without a restart.
func TestMembers_HR_F11_WhatWasMendedIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := unmarked(5)
		quorumOf(t, all[:3]).begun()
		five := quorumOf(t, all)
		five.refuses("one of 3 nodes")
		for _, s := range all {
			s.lose()
		}
		time.Sleep(2 * time.Second)
		five.acquire("a", driver.Granted)
	})
}

// A process finds that all nodes are new, and marks them later. In the meantime other
// processes may have marked them and locked, and a node may have lost its data.
func TestGuard_HR_A8_NoNodeIsMarkedAsNewOnAnOldLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := unmarked(3)
		goOn := make(chan struct{})
		var late []driver.Driver
		for _, s := range all {
			late = append(late, heldUp(s, goOn))
		}
		x, y, z := open(t, late), quorumOf(t, all), quorumOf(t, all)
		go func() { _, _ = x.ask(context.Background(), "x", func(r *driver.Request) { r.Key = "x" }) }()
		synctest.Wait() // it has found that all are new
		y.begun()
		all[0].kill()
		y.acquire("y", driver.Granted, func(r *driver.Request) { r.Key, r.TTL = "once", 5*time.Minute }) // by the last two
		all[0].restart(false)
		all[2].lose()
		close(goOn)
		synctest.Wait()
		all[1].kill() // so that the vote of the node that lost its data is needed
		time.Sleep(2 * time.Second)
		reply, err := z.ask(t.Context(), "z", func(r *driver.Request) { r.Key, r.TTL = "once", time.Minute })
		if err == nil {
			t.Errorf("%+v while y is held", reply)
		}
	})
}

// heldUp returns a node that sends its marks late.
func heldUp(s *server, goOn <-chan struct{}) driver.Driver {
	return intercept.New(s.client(), func(ctx context.Context, m *intercept.Message, send func(context.Context) error) error {
		if m.Verb != intercept.Mark {
			return send(ctx)
		}
		done := make(chan error, 1)
		go func() {
			<-goOn
			done <- send(context.Background())
		}()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}
