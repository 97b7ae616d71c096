package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// waiters measures the server's CPU time for one call, by the number of waiters. It
// calls the store below the library, so that there are no other calls during it.
func waiters(ctx context.Context, b *bench) *table {
	q := newQueueMeter(b, leaseholdRueidis())
	figures := make([][][]float64, len(queueCalls))
	columns := make([]column, 0, len(b.queues))
	for _, n := range b.queues {
		q.fill(ctx, n)
		for i, usec := range q.sample(ctx, b.samples) {
			figures[i] = append(figures[i], []float64{median(usec)})
		}
		columns = append(columns, column{Name: fmt.Sprintf("%d waiting", n)})
	}
	columns[len(columns)-1].AtMost = 50
	t := newTable("Server time of one call, µs, by how many wait for the lock", columns...)
	var calls []contender
	for _, call := range queueCalls {
		calls = append(calls, contender{name: "Leasehold, " + call.name, kind: call.kind})
	}
	t.add(calls, figures)
	return t
}

// queueCalls are the measured calls. The target is for an acquire.
var queueCalls = [...]struct {
	name string
	kind kind
	call func(*queueMeter, context.Context)
}{
	{"a refused TryLock", ours, (*queueMeter).refused},
	{"queueing", ours, (*queueMeter).enqueue},
	{"a release that hands over", peer, (*queueMeter).handOver},
	{"confirming that", peer, (*queueMeter).confirm},
}

// queueMeter keeps a queue for one lock.
type queueMeter struct {
	b       *bench
	who     contender
	store   driver.Driver
	address string
	ids     []string // the holder's, then those of the waiters in order
	asked   int
}

const queueKey = "waiters"

// outlast is longer than any measurement. Beyond a quarter of an hour
// a lease takes another path: its counter has to outlive it.
const outlast = 10 * time.Minute

// window is how long a waiter that is granted the lock may take to
// confirm it: less than the rest of the last lease, as for all users of
// the library.
const window = 10 * time.Second

func newQueueMeter(b *bench, c contender) *queueMeter {
	q := &queueMeter{b: b, who: c, store: b.open(c, halfMinute).(*leaseholdProcess).store}
	sub := need(q.store.(driver.Watcher).Watch(func(driver.Hint) {}))
	for range 1000 {
		if q.address = sub.Address(); q.address != "" {
			return q
		}
		time.Sleep(time.Millisecond)
	}
	panic(failure{errors.New("no subscription")})
}

// fill makes the queue n long.
func (q *queueMeter) fill(ctx context.Context, n int) {
	if len(q.ids) == 0 {
		q.ask(ctx, outlast, driver.Granted)
	}
	for len(q.ids) <= n {
		q.enqueue(ctx)
	}
}

func (q *queueMeter) ask(ctx context.Context, wait time.Duration, want driver.State) {
	q.asked++
	req := driver.Request{
		Key: queueKey, ID: "w" + strconv.Itoa(q.asked), Owner: "bench", Since: time.Now(),
		TTL: outlast, TicketTTL: wait, ConfirmWindow: window, HintAddress: q.address,
	}
	q.expect(need(q.store.Acquire(ctx, req)), want)
	if want != driver.Busy {
		q.ids = append(q.ids, req.ID)
	}
}

func (q *queueMeter) expect(reply driver.Reply, want driver.State) {
	if reply.State != want {
		q.b.Fatalf("the store answers %v, want %v", reply.State, want)
	}
}

func (q *queueMeter) refused(ctx context.Context) { q.ask(ctx, 0, driver.Busy) }
func (q *queueMeter) enqueue(ctx context.Context) { q.ask(ctx, outlast, driver.Queued) }

func (q *queueMeter) handOver(ctx context.Context) {
	q.expect(need(q.store.Release(ctx, driver.Ref{Key: queueKey, ID: q.ids[0]})), driver.Released)
	q.ids = q.ids[1:]
}

func (q *queueMeter) confirm(ctx context.Context) {
	var reply driver.Reply
	var err error
	q.store.Renew(ctx, []driver.Ref{{Key: queueKey, ID: q.ids[0], TTL: outlast}}, func(_ int, r driver.Reply, e error) {
		reply, err = r, e
	})
	check(err)
	q.expect(reply, driver.Granted)
}

// sample makes every call several times and returns the µs of each. The queue is
// as long after the calls as before.
func (q *queueMeter) sample(ctx context.Context, times int) (usec [len(queueCalls)][]float64) {
	for range times {
		for i, call := range queueCalls {
			l := q.b.loadOf(q.who, func() { call.call(q, ctx) })
			usec[i] = append(usec[i], l.usec)
		}
	}
	return usec
}
