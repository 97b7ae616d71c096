//go:build unix

package filedriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

func init() { helpers["wait"] = waitForGrant }

// A process that is stopped in its critical section keeps the lock of a shard.
func TestStoppedProcess_InTheCriticalSectionHoldsUpNobodyForEver(t *testing.T) {
	dir := t.TempDir()
	s, hasty, stopped := open(t, dir), open(t, dir, WithTimeout(200*time.Millisecond)), open(t, dir)
	stuck, free := twoShards(s)
	grant(t, s, driver.Request{Key: free, ID: "id"})
	grant(t, s, driver.Request{Key: stuck, ID: "id"})
	inside := stopped.shardOf(fileName(stuck)).lock
	noError(t, inside.lock(t.Context(), time.Minute))

	_, err := hasty.Acquire(t.Context(), driver.Request{Key: stuck, ID: "other", TTL: time.Minute})
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "stopped process") {
		t.Errorf("acquire: %v; want it unavailable, with the likely cause", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Inspect(ctx, stuck); !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("inspect: %v; want it to end with its context", err)
	}
	answered := map[int]error{}
	hasty.Renew(t.Context(), []driver.Ref{{Key: stuck, ID: "id", TTL: time.Minute}, {Key: free, ID: "id", TTL: time.Minute}},
		func(i int, reply driver.Reply, err error) { answered[i] = err })
	if len(answered) != 2 || !errors.Is(answered[0], driver.ErrUnavailable) || answered[1] != nil {
		t.Errorf("renewals: %v; want only the stuck one to fail", answered)
	}

	inside.unlock()
	release(t, s, stuck, "id")
}

// twoShards returns keys of different shards.
func twoShards(s *Driver) (one, two string) {
	one = "key-0"
	for i := 1; ; i++ {
		two = fmt.Sprint("key-", i)
		if s.shardOf(fileName(two)) != s.shardOf(fileName(one)) {
			return one, two
		}
	}
}

// waitForGrant queues for a key and prints a line when the key is handed over.
func waitForGrant(args []string) {
	s := must(Open(args[0]))
	hints := make(chan driver.Hint, 16)
	sub := must(s.Watch(func(h driver.Hint) { hints <- h }))
	reply := must(s.Acquire(context.Background(), driver.Request{
		Key: "k", ID: args[1], TTL: time.Minute, TicketTTL: time.Minute, ConfirmWindow: 10 * time.Second, HintAddress: sub.Address(),
	}))
	fmt.Println("queued", reply.State, sub.Address())
	for hint := range hints {
		if hint.Kind == driver.HintGranted && hint.ID == args[1] {
			fmt.Println("granted", hint.Token)
			break
		}
	}
	awaitEOF()
	must(0, sub.Close())
	must(0, s.Close())
	fmt.Println("closed")
}

// TestMailbox_OfAProcessGoesWithIt wakes one process, and kills another.
func TestMailbox_OfAProcessGoesWithIt(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	grant(t, s, driver.Request{Key: "k", ID: "holder"})
	live := startHelper(t, "wait", dir, "live")
	live.expect(t, fmt.Sprint("queued ", driver.Queued))
	dead := startHelper(t, "wait", dir, "dead")
	dead.expect(t, "queued")
	dead.kill()
	s.sweep()
	if left := files(t, s.tree.path("wake")); len(left) != 2 {
		t.Errorf("mailboxes: %v; want that of the living process, and its sign of life", left)
	}
	release(t, s, "k", "holder")
	live.expect(t, "granted ")
	noError(t, live.stdin.Close())
	live.expect(t, "closed")
	if left := files(t, s.tree.path("wake")); len(left) > 0 {
		t.Errorf("after close: %v", left)
	}
}
