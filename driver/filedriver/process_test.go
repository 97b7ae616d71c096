//go:build unix

package filedriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

func init() {
	helpers["stop"] = stopInside
	helpers["wait"] = waitForGrant
}

// stopInside stops itself in the critical section of a key.
func stopInside(args []string) {
	s := must(Open(args[0]))
	sh := s.shardOf(fileName(args[1]))
	if err := sh.lock.lock(context.Background(), time.Second); err != nil {
		must(0, err)
	}
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	fmt.Println("inside")
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-woken // the signal stops this thread some time after kill has returned
	sh.lock.unlock()
	fmt.Println("outside")
	awaitEOF()
}

func TestStoppedProcess_InTheCriticalSectionHoldsUpNobodyForEver(t *testing.T) {
	dir := t.TempDir()
	s, hasty := open(t, dir), open(t, dir, WithTimeout(200*time.Millisecond))
	stuck, free := twoShards(s)
	grant(t, s, driver.Request{Key: free, ID: "id"})
	grant(t, s, driver.Request{Key: stuck, ID: "id"})
	p := startHelper(t, "stop", dir, stuck)
	p.expect(t, "inside")

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

	noError(t, p.Process.Signal(syscall.SIGCONT))
	p.expect(t, "outside")
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
		Key: "k", ID: "waiter", TTL: time.Minute, TicketTTL: time.Minute, ConfirmWindow: 10 * time.Second, HintAddress: sub.Address(),
	}))
	fmt.Println("queued", reply.State, sub.Address())
	for hint := range hints {
		if hint.Kind == driver.HintGranted && hint.ID == "waiter" {
			fmt.Println("granted", hint.Token)
			break
		}
	}
	awaitEOF()
	must(0, sub.Close())
	must(0, s.Close())
	fmt.Println("closed")
}

func TestWakeUp_ReachesAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	grant(t, s, driver.Request{Key: "k", ID: "holder"})
	p := startHelper(t, "wait", dir)
	p.expect(t, fmt.Sprint("queued ", driver.Queued))
	release(t, s, "k", "holder")
	p.expect(t, "granted ")
	if left := files(t, s.tree.path("wake")); len(left) != 2 {
		t.Errorf("mailboxes: %v; want one and its sign of life", left)
	}
	noError(t, p.stdin.Close())
	p.expect(t, "closed")
	if left := files(t, s.tree.path("wake")); len(left) > 0 {
		t.Errorf("after close: %v", left)
	}
}

func TestKilledProcess_LeavesNoMailbox(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	grant(t, s, driver.Request{Key: "k", ID: "holder"})
	live, dead := startHelper(t, "wait", dir), startHelper(t, "wait", dir)
	live.expect(t, "queued")
	dead.expect(t, "queued")
	dead.kill()
	s.sweep()
	if left := files(t, s.tree.path("wake")); len(left) != 2 {
		t.Errorf("mailboxes: %v; want that of the living process", left)
	}
	release(t, s, "k", "holder")
}
