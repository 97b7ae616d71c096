package redisroom_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func clusterURL(c *redistest.Cluster, query string) string {
	return "redis+cluster://" + strings.Join(c.Addrs(), ",") + "?" + query
}

func TestCluster_ServesAllSlots(t *testing.T) {
	live.Test(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(clusterURL(c, "prefix="+t.Name()+":"))
		e := listen(t, d)
		const n = 200
		var refs []driver.Ref
		for i := range n {
			key := fmt.Sprintf("k%d{x}", i) // together in one slot
			if i%2 == 0 {
				key = fmt.Sprint("k", i)
			}
			first := acquire(t, d, request(key, "a"), driver.Granted)
			if again := acquire(t, d, request(key, "a"), driver.Granted); again.Token != first.Token {
				t.Fatalf("%s: token %d, then %d", key, first.Token, again.Token)
			}
			acquire(t, d, waiting(key, "b", e.Address()), driver.Queued)
			refs = append(refs, lease(key, "a"))
		}
		for _, node := range c.Nodes[:3] {
			noErr(t, node.Client().ScriptFlush(background).Err())
		}
		replies, errs := renewAll(d, refs)
		for i := range refs {
			if errs[i] != nil || replies[i].State != driver.Granted {
				t.Fatalf("renew %s: %+v, %v", refs[i].Key, replies[i], errs[i])
			}
		}
		if keys := listed(t, d, "k"); len(keys) != n {
			t.Errorf("%d keys listed, want %d", len(keys), n)
		}
		for _, ref := range refs {
			release(t, d, ref.Key, "a", driver.Released)
			e.hear(t, driver.HintGranted, "b")
			renew(t, d, lease(ref.Key, "b"), driver.Granted)
			release(t, d, ref.Key, "b", driver.Released)
		}
	})
}

// R6
func TestCluster_R6_SlotMovesUnderALoneHolder(t *testing.T) {
	live.Test(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(clusterURL(c, "timeout=10s&prefix="))
		key := strings.ToLower(t.Name())
		held := acquire(t, d, request(key, "a"), driver.Granted)
		move := c.Move(key)
		for _, state := range []func() error{func() error { return nil }, move.One, move.Rest} {
			noErr(t, state())
			if r := renew(t, d, lease(key, "a"), driver.Granted); r.Token != held.Token {
				t.Errorf("token %d, then %d", held.Token, r.Token)
			}
		}
		noErr(t, move.End())
		if again := acquire(t, d, request(key, "a"), driver.Granted); again.Token != held.Token {
			t.Errorf("token %d, then %d", held.Token, again.Token)
		}
		renew(t, d, lease(key, "a"), driver.Granted)

		move = c.Move(key)
		noErr(t, move.One())
		release(t, d, key, "a", driver.Released)
		// On a busy machine the deadline may meet a request on its way, whose outcome is unknown.
		for atMost := 200 * time.Millisecond; ; atMost *= 2 {
			start := time.Now()
			_, err := d.Acquire(noTimer{background, start.Add(atMost)}, request(key, "late"))
			if took := time.Since(start) - atMost; took > 5*time.Second {
				live.Late(t, "returned %v after its deadline", took)
			}
			if errors.Is(err, driver.ErrUnavailable) {
				break
			}
			if err == nil || atMost > 5*time.Second {
				t.Errorf("acquire in a slot that moves for longer than there is time: %v, want ErrUnavailable", err)
				break
			}
		}
		waiting := make(chan driver.Reply)
		go func() {
			reply, err := d.Acquire(background, request(key, "c"))
			if err != nil {
				t.Errorf("acquire in a slot that is being moved: %v", err)
			}
			waiting <- reply
		}()
		noErr(t, move.Rest())
		noErr(t, move.End())
		if r := <-waiting; r.State != driver.Granted || r.Token <= held.Token {
			t.Errorf("after the slot has moved: %+v, want a grant with a token above %d", r, held.Token)
		}
		release(t, d, key, "c", driver.Released)
	})
}

// noTimer has a deadline, but its Done channel does not close then: the store must check
// deadlines on its own.
type noTimer struct {
	context.Context
	deadline time.Time
}

func (c noTimer) Deadline() (time.Time, bool) { return c.deadline, true }

// R6
func TestCluster_R6_SlotMovesUnderAQueue(t *testing.T) {
	live.Test(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(clusterURL(c, "timeout=2s&prefix=")) // in which a client on a busy machine connects
		key := strings.ToLower(t.Name())
		held, e := acquire(t, d, request(key, "a"), driver.Granted), listen(t, d)
		for _, id := range []string{"b", "c"} {
			acquire(t, d, waiting(key, id, e.Address()), driver.Queued)
		}
		move := c.Move(key)
		renew(t, d, lease(key, "a"), driver.Granted) // all slots are still there
		noErr(t, move.Named("\x1fc"))                // the counter
		renew(t, d, lease(key, "a"), driver.Granted)
		release(t, d, key, "a", driver.Released)
		if r := renew(t, d, lease(key, "b"), driver.Granted); r.Token <= held.Token {
			t.Errorf("token %d after %d", r.Token, held.Token)
		} else {
			held = r
		}
		noErr(t, move.One())
		if _, errs := renewAll(d, []driver.Ref{lease(key, "b")}); !errors.Is(errs[0], driver.ErrUnavailable) {
			t.Errorf("renew in a slot that is half moved: %v, want ErrUnavailable", errs[0])
		}
		if _, err := d.Release(background, lease(key, "c")); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("leave the queue in a slot that is half moved: %v, want ErrUnavailable", err)
		}
		noErr(t, move.Rest())
		renew(t, d, lease(key, "b"), driver.Granted) // all slots have moved
		release(t, d, key, "b", driver.Released)
		noErr(t, move.End())
		if r := renew(t, d, lease(key, "c"), driver.Granted); r.Token <= held.Token {
			t.Errorf("token %d after %d", r.Token, held.Token)
		}
		release(t, d, key, "c", driver.Released)
	})
}
