package locktest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/respproxy"
)

// Histories of a contended lock under faults, judged by a checker that tries to
// find an order in which one lock could have done all of it.

// rig is a server, what stands before it, and clients of one of the libraries.
type rig struct {
	*testing.T
	server *redistest.Server
	proxy  *respproxy.Proxy
	open   func(tb testing.TB, addr string) driver.Driver
}

// tryTimeout bounds one try of a driver, so that a lost reply costs no more.
const tryTimeout = 300 * time.Millisecond

// both runs a case on both client libraries, side by side.
func both(t *testing.T, run func(r *rig)) {
	t.Helper()
	for name, open := range map[string]func(testing.TB, string) driver.Driver{
		"go-redis": func(tb testing.TB, addr string) driver.Driver {
			client := redis.NewClient(&redis.Options{Addr: addr})
			tb.Cleanup(func() { _ = client.Close() })
			d, err := redisdriver.New(client, redisdriver.WithTimeout(tryTimeout))
			if err != nil {
				tb.Fatal(err)
			}
			return d
		},
		"rueidis": func(tb testing.TB, addr string) driver.Driver {
			d, err := rueidisdriver.New(rueidis.ClientOption{InitAddress: []string{addr}}, rueidisdriver.WithTimeout(tryTimeout))
			if err != nil {
				tb.Fatal(err)
			}
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			run(&rig{T: t, server: server, proxy: respproxy.Start(t, server.Addr()), open: open})
		})
	}
}

// event is an operation on a lock with fencing tokens: a grant of a token, or
// the end of the lease that has it, by release or by expiry.
type event struct {
	key   string
	token int64
	grant bool
}

// room is the state of the model: who holds it, and the last token given.
type room struct{ holder, last int64 }

var lockModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := make(map[string][]porcupine.Operation)
		for _, op := range history {
			key := op.Input.(event).key
			byKey[key] = append(byKey[key], op)
		}
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return room{} },
	Step: func(state, input, _ any) (bool, any) {
		s, e := state.(room), input.(event)
		if e.grant {
			return s.holder == 0 && e.token > s.last, room{e.token, e.token}
		}
		return s.holder == e.token, room{0, s.last}
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

// history records what clients saw. Attempts that were not granted, or whose
// outcome is unknown, believe nothing and so leave no trace: the library undoes
// what they did.
type history struct {
	start time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
	// open are ends of which only the earliest time is known: the lease
	// expired, or the answer to its release was lost.
	open []porcupine.Operation
}

func (h *history) now() int64 { return int64(time.Since(h.start)) }

func (h *history) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

func (h *history) granted(key string, token, called int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{Input: event{key, token, true}, Call: called, Return: h.now()})
}

// ended notes the end of a lease, at an unknown time from called on if the
// release was not confirmed.
func (h *history) ended(key string, token, called int64, confirmed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	op := porcupine.Operation{Input: event{key, token, false}, Call: called, Return: h.now()}
	if confirmed {
		h.ops = append(h.ops, op)
	} else {
		h.open = append(h.open, op)
	}
}

// close bounds the open ends by the return of the next grant, and returns all.
func (h *history) close() []porcupine.Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	grants := slices.DeleteFunc(slices.Clone(h.ops), func(op porcupine.Operation) bool { return !op.Input.(event).grant })
	slices.SortFunc(grants, func(a, b porcupine.Operation) int {
		return cmp.Compare(a.Input.(event).token, b.Input.(event).token)
	})
	all := slices.Clone(h.ops)
	for _, end := range h.open {
		e := end.Input.(event)
		end.Return = int64(time.Hour)
		i := slices.IndexFunc(grants, func(op porcupine.Operation) bool {
			next := op.Input.(event)
			return next.key == e.key && next.token > e.token
		})
		if i >= 0 {
			end.Return = max(grants[i].Return, end.Call)
		}
		all = append(all, end)
	}
	return all
}

// believe holds the lock for a while and notes what the holder could know.
func (h *history) believe(l *leasehold.Lease, key string, lasting time.Duration) {
	timer := time.NewTimer(lasting)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.Context().Done():
	}
	called := h.now()
	if l.Context().Err() != nil {
		// It was believed in until its deadline and ended there or later.
		called = min(called, int64(l.Deadline().Sub(h.start)))
	}
	err := l.Release()
	h.ended(key, l.Token(), called, err == nil)
}

func TestHistories_AreThoseOfOneLock(t *testing.T) {
	live.Test(t)
	t.Parallel()
	oneLock(t)
}

func TestHistories_HandedOnInTheProcessAreThoseOfOneLock(t *testing.T) {
	live.Test(t)
	t.Parallel()
	oneLock(t, leasehold.WithLocalHandover(4))
}

// oneLock has clients with some options contend for locks under faults, and judges the
// history.
func oneLock(t *testing.T, opts ...leasehold.Option) {
	t.Helper()
	opts = append(opts, leasehold.WithTTL(400*time.Millisecond), leasehold.WithReleaseTimeout(time.Second))
	both(t, func(r *rig) {
		h := &history{start: time.Now()}
		// Longer where the machine does not let enough happen in that time.
		const lasting, most = 4 * time.Second, 2 * patience
		ctx, cancel := context.WithTimeout(context.Background(), most)
		defer cancel()
		var wg sync.WaitGroup
		for range 3 {
			c, err := leasehold.New(r.open(r.T, r.proxy.Addr()), opts...)
			if err != nil {
				r.Fatal(err)
			}
			r.Cleanup(func() { _ = c.Close() }) // what is left, a lost reply may have left
			for range 6 {
				wg.Go(func() {
					for ctx.Err() == nil {
						key := fmt.Sprint(rand.IntN(2))
						called := h.now()
						l, err := c.Mutex(key).Lock(ctx)
						if err != nil {
							continue
						}
						h.granted(key, l.Token(), called)
						h.believe(l, key, rand.N(10*time.Millisecond))
					}
				})
			}
		}
		faults := r.disturb(ctx, func(faults int) bool { return time.Since(h.start) > lasting && h.len() >= 20 && faults >= 3 })
		cancel()
		wg.Wait()
		ops := h.close()
		result := porcupine.CheckOperationsTimeout(lockModel, ops, 2*patience)
		r.Logf("%d operations, %d of unknown end, %d faults: %v", len(ops), len(h.open), faults, result)
		switch result {
		case porcupine.Illegal:
			r.Errorf("no order explains what was seen")
		case porcupine.Unknown:
			r.Errorf("what was seen could not be judged")
		}
		if len(ops) < 20 || faults < 3 {
			r.Errorf("too little happened: %d operations, %d faults", len(ops), faults)
		}
	})
}

// disturb makes faults until they are enough, or ctx ends, and returns how many.
func (r *rig) disturb(ctx context.Context, enough func(faults int) bool) int {
	n := 0
	for ; ctx.Err() == nil && !enough(n); n++ {
		switch rand.IntN(4) {
		case 0:
			r.proxy.CutAll()
		case 1:
			r.proxy.Add(respproxy.DropReply, 1, respproxy.Command("EVALSHA"))
		case 2:
			r.proxy.Add(respproxy.DropRequest, 1, respproxy.Command("EVALSHA"))
		case 3:
			r.server.Stop()
			time.Sleep(rand.N(600 * time.Millisecond))
			r.server.Cont()
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(300 * time.Millisecond)):
		}
	}
	return n
}

// TestHistories_CheckerFindsSeededBugs keeps the checker honest.
func TestHistories_CheckerFindsSeededBugs(t *testing.T) {
	op := func(token int64, grant bool, call, back int64) porcupine.Operation {
		return porcupine.Operation{Input: event{"k", token, grant}, Call: call, Return: back}
	}
	good := []porcupine.Operation{op(1, true, 0, 5), op(1, false, 10, 15), op(2, true, 3, 14), op(2, false, 20, 30)}
	if !porcupine.CheckOperations(lockModel, good) {
		t.Error("refuses a wait that is served by a release")
	}
	for name, bad := range map[string][]porcupine.Operation{
		"two holders":       {op(1, true, 0, 5), op(2, true, 6, 8), op(1, false, 10, 15), op(2, false, 20, 30)},
		"before the expiry": {op(1, true, 0, 5), op(2, true, 6, 8), op(1, false, 9, 1000), op(2, false, 20, 30)},
		"token regresses":   {op(2, true, 0, 5), op(2, false, 6, 8), op(1, true, 10, 15), op(1, false, 20, 30)},
		"token repeats":     {op(1, true, 0, 5), op(1, false, 6, 8), op(1, true, 10, 15), op(1, false, 20, 30)},
		"released twice":    {op(1, true, 0, 5), op(1, false, 6, 8), op(1, false, 9, 10)},
	} {
		if porcupine.CheckOperations(lockModel, bad) {
			t.Errorf("accepts: %s", name)
		}
	}
	h := &history{start: time.Now()}
	h.granted("k", 1, 0)
	h.ended("k", 1, h.now(), false)
	h.granted("k", 2, h.now())
	if !porcupine.CheckOperations(lockModel, h.close()) {
		t.Error(errors.New("refuses an expiry that nobody saw"))
	}
}
