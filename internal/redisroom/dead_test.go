package redisroom

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// TestPurge_HR_D1_DeadPartiesCostNobodyAWait has thousands of parties die at once
// while somebody lives, and asks for what they leave.
func TestPurge_HR_D1_DeadPartiesCostNobodyAWait(t *testing.T) {
	const dead = 5000
	ctx := context.Background()
	w, s := newWire(t, false)
	enter := func(id string, want driver.State, change func(*driver.Request)) driver.Reply {
		t.Helper()
		req := simpleRequest("k", id)
		change(&req)
		reply, err := s.Acquire(ctx, req)
		if err != nil || reply.State != want {
			t.Fatalf("%s: %+v, %v; want state %d", id, reply, err, want)
		}
		return reply
	}
	sharing := func(weight int, ttl time.Duration) func(*driver.Request) {
		return func(r *driver.Request) { r.Mode, r.Limit, r.Weight, r.TTL = driver.Shared, dead+1, weight, ttl }
	}
	const brief, long = time.Minute, time.Hour // however busy the machine
	waits := func(r *driver.Request) { r.TicketTTL, r.HintAddress = brief, "ears" }

	enter("alive", driver.Granted, sharing(1, long))
	for i := range dead {
		enter(fmt.Sprint("dead-", i), driver.Granted, sharing(1, brief))
	}
	w.late = later(120)
	var renewed driver.Reply
	w.renew(s, driver.Ref{Key: "k", ID: "alive", TTL: long}, &renewed)
	if renewed.State != driver.Granted {
		t.Errorf("the one who lives is told %+v", renewed)
	}
	enter("next", driver.Granted, sharing(dead, long))

	w.late = ""
	for i := range dead {
		enter(fmt.Sprint("waits-", i), driver.Queued, waits)
	}
	w.late = later(240)
	if reply := enter("last", driver.Queued, waits); reply.Position != 1 {
		t.Errorf("place %d behind %d tickets that have run out", reply.Position, dead)
	}
}

// TestHandOver_HR_D1_TicketsOfADeadProcessCostNobodyAWait has a process die for which
// thousands wait: when it has let a hand-over lapse, all of them are passed over.
func TestHandOver_HR_D1_TicketsOfADeadProcessCostNobodyAWait(t *testing.T) {
	const dead = 5000
	ctx := context.Background()
	w, s := newWire(t, false)
	ask := func(id, notify string) driver.Reply {
		t.Helper()
		req := simpleRequest("k", id)
		req.TTL, req.TicketTTL, req.HintAddress = time.Hour, time.Hour, notify
		reply, err := s.Acquire(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	ask("holder", "ears")
	for i := range dead {
		ask(fmt.Sprint("dead-", i), "dead")
	}
	ask("alive", "ears")
	if _, err := s.Release(ctx, driver.Ref{Key: "k", ID: "holder"}); err != nil {
		t.Fatal(err)
	}
	w.late = later(2) // the one that was handed the room has not confirmed it
	if reply := ask("alive", "ears"); reply.State != driver.Granted {
		t.Errorf("behind %d of a dead process: %+v", dead, reply)
	}
}

// TestList_HR_D1_TellsOfWhoWaitsBehindTheDead: nobody is inside, and those at the head
// of the queue have gone.
func TestList_HR_D1_TellsOfWhoWaitsBehindTheDead(t *testing.T) {
	b := &bench{t: t, client: redistest.Start(t).Client(), prefix: "p:"}
	waits := func(d time.Duration) func(*driver.Request) {
		return func(r *driver.Request) { queueing(r); r.TicketTTL = d }
	}
	b.enter("holder", func(r *driver.Request) { r.TTL = 30 * time.Second })
	for i := range 700 {
		b.enter(fmt.Sprint("dead-", i), waits(30*time.Second))
	}
	b.enter("alive", waits(10*time.Minute))
	sc, cmd := calls["list"](b)
	if listed, err := b.run(later(60), sc, cmd); err != nil || listed != int64(1) {
		t.Errorf("%v, %v; want it listed", listed, err)
	}
}
