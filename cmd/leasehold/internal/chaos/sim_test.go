//go:build linux

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/chaos"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/checker"
	"github.com/leasehold-go/leasehold/internal/test/history"
)

// These tests simulate worlds: crowds use the memory store in virtual time, with the
// faults of package chaos between every client and the store, and clients
// die. A month passes in seconds.

// world is one simulation.
type world struct {
	seed    uint64
	lasting time.Duration
	plan    chaos.Plan
	procs   int
	// death is the mean life of a process.
	death time.Duration
	rules history.Rules
	// open returns the driver of a process on the world's store.
	open func(w *world) driver.Driver

	store *memdriver.Driver
	start time.Time

	mu      sync.Mutex
	records []history.Record
}

// newWorld returns a random world.
func newWorld(seed uint64) *world {
	rnd := rand.New(rand.NewPCG(seed, 0))
	some := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rnd.Int64N(int64(most-least)))
	}
	ttl := []time.Duration{200 * time.Millisecond, time.Second, 10 * time.Second, time.Minute}[rnd.IntN(4)]
	return &world{
		seed: seed, lasting: 12 * time.Hour, procs: 2 + rnd.IntN(4), death: some(10*time.Minute, 2*time.Hour),
		rules: history.Rules{Tokens: true, Queue: true, Steady: true, Prompt: int64(8 * time.Second)},
		plan: chaos.Plan{
			Contenders: 2 + rnd.IntN(5), TTL: ttl, Hold: some(time.Millisecond, 2*ttl), Burst: some(4*time.Minute, 15*time.Minute),
			Keys: 1, Epoch: time.Hour, Detached: true, Kinds: []chaos.Kind{chaos.Mutex, chaos.Mutex, chaos.RW, chaos.Semaphore}, Faulty: rnd.Float64() / 10,
		},
		open: func(w *world) driver.Driver { return w.store.Join() },
	}
}

// now returns the world's time; the times of a history are above zero.
func (w *world) now() int64 { return int64(time.Since(w.start)) + 1 }

// Add implements [history.Sink].
func (w *world) Add(r history.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, r)
}

// run plays the world to its end and checks its history.
func (w *world) run(t *testing.T) *checker.Verdict {
	synctest.Test(t, func(t *testing.T) {
		w.store, w.start = memdriver.New(), time.Now()
		register := new(chaos.Memory)
		ctx, cancel := context.WithTimeout(context.Background(), w.lasting)
		defer cancel()
		var wg sync.WaitGroup
		for i := range w.procs {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(w.seed, uint64(i+1)))
				for n := 0; ctx.Err() == nil; n++ {
					w.generation(ctx, t, rnd, register.Write, fmt.Sprintf("p%d-%d", i, n))
				}
			})
		}
		wg.Wait()
		// The leases and tickets of dead clients expire.
		time.Sleep(2*w.plan.TTL + time.Minute)
		keys, _, err := w.store.List(context.Background(), "", "")
		if err != nil {
			t.Error(err)
		}
		w.Add(history.Record{At: w.now(), What: history.Left, Note: strings.Join(keys, " ")})
	})
	return checker.Judge(w.rules, w.records)
}

// dump writes the history of the world to the directory of -chaos.dir, if that is set.
func (w *world) dump(t *testing.T) {
	t.Helper()
	if *keep == "" {
		return
	}
	path := filepath.Join(*keep, fmt.Sprintf("simulation-%d.jsonl", w.seed))
	sink, err := history.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	for _, r := range w.records {
		sink.Add(r)
	}
	t.Log(path)
}

// generation runs one process until it dies or the world ends.
func (w *world) generation(ctx context.Context, t *testing.T, rnd *rand.Rand, register func(chaos.Write, *bool) error, name string) {
	m := &mortal{world: w, name: name}
	d := chaos.Wrap(w.open(w), chaos.Faults{
		Part: w.plan.Faulty, Delay: w.plan.TTL, Proc: name, Sink: m, Now: w.now, Seed: rnd.Uint64(), Dead: m.isDead,
	})
	client, err := leasehold.New(d)
	if err != nil {
		t.Error(err)
		return
	}
	crowd := &chaos.Crowd{Client: client, Proc: name, Plan: w.plan, Sink: m, Now: w.now, Register: register, Seed: rnd.Uint64()}
	life, end := context.WithCancel(ctx)
	defer end()
	death := time.AfterFunc(time.Duration(rnd.ExpFloat64()*float64(w.death)), func() {
		m.die()
		end()
	})
	crowd.Run(life)
	death.Stop()
	if err := client.Close(); err != nil && !m.isDead() {
		t.Errorf("close: %v", err)
	}
	m.Add(history.Record{At: w.now(), Proc: name, What: history.Bye})
}

// mortal is the life of a process. It receives the records of the process, until the death.
type mortal struct {
	world *world
	name  string

	mu   sync.Mutex
	dead bool
}

func (m *mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

func (m *mortal) die() {
	now := m.world.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	m.world.Add(history.Record{At: now, Since: now, Proc: m.name, What: history.Fault, Note: "kill a client"})
}

// Add implements [history.Sink].
func (m *mortal) Add(r history.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dead {
		m.world.Add(r)
	}
}

// worlds is the number of worlds that make a month.
const worlds = 62

func TestSimulation_AMonthOfFaultsBreaksNothing(t *testing.T) {
	t.Parallel()
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = seeds[:0]
		for range worlds {
			seeds = append(seeds, rand.Uint64())
		}
	}
	var total checker.Verdict
	var passed time.Duration
	for _, s := range seeds {
		w := newWorld(s)
		v := w.run(t)
		passed += w.lasting
		total.Attempts += v.Attempts
		total.Grants += v.Grants
		total.Losses += v.Losses
		total.Ordered += v.Ordered
		for _, n := range v.Faults {
			total.Operations += n
		}
		if len(v.Violations) > 0 {
			t.Errorf("%+v\n%s\nplay again with -chaos.seed=%d", w.plan, v, s)
			w.dump(t)
			break
		}
	}
	t.Logf("%v simulated: %d attempts, %d grants, %d losses, %d places in queues judged, %d faults",
		passed, total.Attempts, total.Grants, total.Losses, total.Ordered, total.Operations)
}
