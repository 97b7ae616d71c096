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
func waiters(ctx context.Context, b *bench) (*table, error) {
	c := leaseholdRueidis()
	q, err := newQueueMeter(b, c)
	if err != nil {
		return nil, err
	}
	defer q.process.Close()
	figures := make([][][]float64, len(queueCalls))
	columns := make([]column, 0, len(b.queues))
	for _, n := range b.queues {
		if err := q.fill(ctx, n); err != nil {
			return nil, err
		}
		usec, err := q.sample(ctx, b.samples)
		if err != nil {
			return nil, err
		}
		for i := range usec {
			figures[i] = append(figures[i], []float64{median(usec[i])})
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
	return t, nil
}

// queueCalls are the measured calls. The target is for an acquire.
var queueCalls = [...]struct {
	name string
	kind kind
	call func(*queueMeter, context.Context) error
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
	process process
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

func newQueueMeter(b *bench, c contender) (*queueMeter, error) {
	p, err := b.open(c, halfMinute)
	if err != nil {
		return nil, err
	}
	q := &queueMeter{b: b, who: c, process: p, store: p.(*leaseholdProcess).store}
	sub, err := q.store.(driver.Watcher).Watch(func(driver.Hint) {})
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	for range 1000 {
		if q.address = sub.Address(); q.address != "" {
			return q, nil
		}
		time.Sleep(time.Millisecond)
	}
	return nil, errors.Join(errors.New("no subscription"), p.Close())
}

// fill makes the queue n long.
func (q *queueMeter) fill(ctx context.Context, n int) error {
	if len(q.ids) == 0 {
		if err := q.ask(ctx, outlast, driver.Granted); err != nil {
			return err
		}
	}
	for len(q.ids) <= n {
		if err := q.enqueue(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (q *queueMeter) ask(ctx context.Context, wait time.Duration, want driver.State) error {
	q.asked++
	req := driver.Request{
		Key: queueKey, ID: "w" + strconv.Itoa(q.asked), Owner: "bench", Since: time.Now(),
		TTL: outlast, TicketTTL: wait, ConfirmWindow: window, HintAddress: q.address,
	}
	reply, err := q.store.Acquire(ctx, req)
	if err == nil && reply.State != want {
		err = fmt.Errorf("acquire: %v, want %v", reply.State, want)
	}
	if want != driver.Busy {
		q.ids = append(q.ids, req.ID)
	}
	return err
}

func (q *queueMeter) refused(ctx context.Context) error { return q.ask(ctx, 0, driver.Busy) }
func (q *queueMeter) enqueue(ctx context.Context) error { return q.ask(ctx, outlast, driver.Queued) }

func (q *queueMeter) handOver(ctx context.Context) error {
	reply, err := q.store.Release(ctx, driver.Ref{Key: queueKey, ID: q.ids[0]})
	if err == nil && reply.State != driver.Released {
		err = fmt.Errorf("release: %v", reply.State)
	}
	q.ids = q.ids[1:]
	return err
}

func (q *queueMeter) confirm(ctx context.Context) (err error) {
	q.store.Renew(ctx, []driver.Ref{{Key: queueKey, ID: q.ids[0], TTL: outlast}}, func(_ int, reply driver.Reply, e error) {
		if err = e; err == nil && reply.State != driver.Granted {
			err = fmt.Errorf("confirm: %v", reply.State)
		}
	})
	return err
}

// sample makes every call several times and returns the µs of each. The queue is
// as long after the calls as before.
func (q *queueMeter) sample(ctx context.Context, times int) (usec [len(queueCalls)][]float64, err error) {
	for range times {
		for i, call := range queueCalls {
			l, err := q.b.loadOf(q.who, func() error { return call.call(q, ctx) })
			if err != nil {
				return usec, err
			}
			usec[i] = append(usec[i], l.usec)
		}
	}
	return usec, nil
}
