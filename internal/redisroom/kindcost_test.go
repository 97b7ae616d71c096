package redisroom_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// The cost of every kind of lock on the server. `make costs` prints the table of which
// docs/performance.md shows an extract.

// kind describes the requests of one kind of lock.
type kind struct {
	name string
	// ask turns a plain request into that of the i-th asker.
	ask func(req *driver.Request, i int)
	// inside is how many holders fill the room.
	inside int
	// counts reports whether the i-th asker is measured. The remaining askers take turns with the
	// measured ones.
	counts func(i int) bool
}

var kinds = []kind{
	{"mutex", func(*driver.Request, int) {}, 1, all},
	{"re-entrant mutex", func(r *driver.Request, i int) { r.Reenter, r.Owner = true, fmt.Sprint("owner ", i) }, 1, all},
	{"read-write: a reader, after a writer", inTurn, 1, func(i int) bool { return i%2 == 1 }},
	{"read-write: a writer, after a reader", inTurn, 1, func(i int) bool { return i%2 == 0 }},
	{"semaphore of 3", func(r *driver.Request, _ int) { r.Mode, r.Limit, r.Weight = driver.Shared, 3, 1 }, 3, all},
}

// inTurn makes askers write and read alternately.
func inTurn(r *driver.Request, i int) { r.Mode = driver.Mode(i % 2) }

func all(int) bool { return true }

// queues are the lengths of queue that are compared.
var queues = []int{10, 1000, 10_000}

// growth is how many times as much 10 000 waiters may cost as 10. If all of the cost were the
// logarithm of the queue's length, it would be log 10 000 / log 10. A cost that grows with the
// root of the length would be 31 times, and a cost that grows with the length 1000 times as high.
const growth = 4

// slowest is W9: the server's time for an acquire among 10 000 waiters, of 99
// in 100.
const slowest = time.Millisecond

// TestCost_W9_OfEveryKindGrowsAtMostLikeTheLogarithmOfTheQueue measures every call on its own, on
// the server.
func TestCost_W9_OfEveryKindGrowsAtMostLikeTheLogarithmOfTheQueue(t *testing.T) {
	skip.Nightly(t, "it compares the server's times")
	skip.Racing(t, "it compares the server's times")
	s := redistest.Start(t)
	var table strings.Builder
	fmt.Fprintf(&table, "| kind | free, µs | hand-over, µs with 10 waiting | 1 000 | 10 000 | of it the release | the acquire |\n|---|%s\n", strings.Repeat("--:|", 6))
	for _, k := range kinds {
		m := &meter{t: t, server: s, kind: k, key: k.name}
		m.store, _ = clients["rueidis"](s.URL())
		m.ears = listen(t, m.store)
		free := m.free()
		var over []handOver
		for _, n := range queues {
			over = append(over, m.contended(n))
		}
		few, many := over[0], over[len(over)-1]
		fmt.Fprintf(&table, "| %s | %.1f | %.0f | %.0f | %.0f | %.0f | %.0f |\n",
			k.name, free, few.total(), over[1].total(), many.total(), many.release, many.queue)
		if ratio := many.total() / few.total(); ratio > growth {
			t.Errorf("%s: a hand-over costs %.1f times as much with 10 000 waiting as with 10", k.name, ratio)
		}
		if p99 := m.crowdedAcquire(); p99 > slowest {
			t.Errorf("%s: p99 of an acquire among 10 000 waiters is %v", k.name, p99)
		}
		noErr(t, m.store.Close())
		s.Client().FlushAll(background)
	}
	t.Logf("what each kind costs the server\n\n%s", &table)
}

// meter plays one kind of lock and reads the counters of the server.
type meter struct {
	t      *testing.T
	server *redistest.Server
	kind   kind
	key    string
	store  store
	ears   *ears

	asked  int     // how many have asked
	inside []int   // the numbers of the holders, in the order of entry
	queue  []int   // the numbers of the next, in order
	usec   float64 // of the server, at the last look
}

// spent runs f and returns the server's time, in µs, for the scripts that f called.
func (m *meter) spent(f func()) float64 {
	f()
	before := m.usec
	m.usec = m.server.CommandStats(m.t)["evalsha"].Usec
	return m.usec - before
}

// id is that of the i-th asker.
func id(i int) string { return fmt.Sprint("p", i) }

// next returns the request of another party.
func (m *meter) next(wait bool) driver.Request {
	m.asked++
	req := request(m.key, id(m.asked))
	if wait {
		req.HintAddress, req.TicketTTL = m.ears.Address(), 10*time.Minute
	}
	// No call answers a later one: the lease must last until it is measured.
	req.TTL, req.ConfirmWindow = 10*time.Minute, time.Minute
	m.kind.ask(&req, m.asked)
	return req
}

// free returns the time of the acquire and the release of a lock without waiters.
func (m *meter) free() float64 {
	const pairs = 300
	best := math.Inf(1)
	for range 4 {
		m.spent(func() {})
		best = min(best, m.spent(func() { // a busy machine only adds
			for range pairs {
				for !m.kind.counts(m.asked + 1) {
					m.asked++
				}
				m.enter()
				m.leave()
			}
		})/pairs)
	}
	return best
}

// handOver is the cost of one hand-over: a holder releases, the next waiter gets the lock, and
// the former holder queues again. The times are medians, in µs.
type handOver struct{ release, confirm, queue float64 }

func (h handOver) total() float64 { return h.release + h.confirm + h.queue }

// contended measures hand-overs with n waiting.
func (m *meter) contended(n int) handOver {
	for len(m.inside) < m.kind.inside {
		m.enter()
	}
	for len(m.queue) < n {
		m.enqueue()
	}
	m.spent(func() {})
	times := 100
	if testing.Short() {
		times = 30
	}
	var releases, confirms, queues []float64
	for range times {
		coming := m.queue[0]
		left, came, queued := m.spent(m.leave), m.spent(m.come), m.spent(m.enqueue)
		if m.kind.counts(coming) {
			releases, confirms, queues = append(releases, left), append(confirms, came), append(queues, queued)
		}
	}
	return handOver{middle(releases), middle(confirms), middle(queues)}
}

// enter makes another party take the lock, which is free.
func (m *meter) enter() {
	acquire(m.t, m.store, m.next(false), driver.Granted)
	m.inside = append(m.inside, m.asked)
}

// leave makes the first holder release its lock.
func (m *meter) leave() {
	release(m.t, m.store, m.key, id(m.inside[0]), driver.Released)
	m.inside = m.inside[1:]
}

// come makes the next waiter confirm that it was handed the lock.
func (m *meter) come() {
	in := m.queue[0]
	m.ears.hear(m.t, driver.HintGranted, id(in))
	renew(m.t, m.store, driver.Ref{Key: m.key, ID: id(in), TTL: 10 * time.Minute}, driver.Granted)
	m.inside, m.queue = append(m.inside, in), m.queue[1:]
}

func (m *meter) enqueue() {
	acquire(m.t, m.store, m.next(true), driver.Queued)
	m.queue = append(m.queue, m.asked)
}

// crowdedAcquire returns the server's time of 99 in 100 acquires with 10 000 waiting, of requests
// with and without a queue. A busy machine only adds time, so the measurement is repeated until
// it is within the bound.
func (m *meter) crowdedAcquire() time.Duration {
	best := time.Hour
	for range 10 {
		var usec []float64
		for range 100 {
			usec = append(usec, m.spent(m.enqueue))
			usec = append(usec, m.spent(func() { acquire(m.t, m.store, m.next(false), driver.Busy) }))
		}
		slices.Sort(usec)
		best = min(best, time.Duration(usec[len(usec)*99/100])*time.Microsecond)
		if best <= slowest {
			break
		}
	}
	m.t.Logf("%s: p99 of an acquire among 10 000 waiters: %v", m.kind.name, best)
	return best
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
