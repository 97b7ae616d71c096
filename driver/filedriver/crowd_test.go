//go:build unix

package filedriver

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
)

func init() { helpers["crowd"] = crowd }

const crowdTTL = 300 * time.Millisecond

// contender takes the key "k" again and again and logs from when to when it had the lease, by
// the machine's own clock.
type contender struct {
	store *Driver
	log   *os.File
	hints chan driver.Hint
	stop  *atomic.Bool

	address string
	id      atomic.Pointer[string]
	sent    time.Duration // before the request that was granted
}

// crowd is a process of several contenders.
func crowd(args []string) {
	// All contenders may want the file lock at once. On a busy machine they have it
	// in turn, but the last of them not within the two seconds of the default.
	s := must(Open(args[0], WithTimeout(30*time.Second)))
	log := must(os.OpenFile(args[1], os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600))
	n := must(strconv.Atoi(args[2]))
	var stop atomic.Bool
	contenders := make([]*contender, n)
	sub := must(s.Watch(func(h driver.Hint) {
		for _, c := range contenders {
			if id := c.id.Load(); h.ID != "" && (id == nil || *id != h.ID) {
				continue
			}
			select {
			case c.hints <- h:
			default: // it asks in time anyway
			}
		}
	}))
	var all sync.WaitGroup
	for i := range contenders {
		contenders[i] = &contender{store: s, log: log, address: sub.Address(), hints: make(chan driver.Hint, 64), stop: &stop}
	}
	for _, c := range contenders {
		all.Go(c.run)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop.Store(true)
	all.Wait()
	must(0, s.Close())
}

func (c *contender) run() {
	for i := 0; !c.stop.Load(); i++ {
		id := fmt.Sprint(os.Getpid(), "-", rand.Uint64())
		c.id.Store(&id)
		token, ok := c.enter(id)
		if !ok {
			continue
		}
		start := c.store.machine.elapsed()
		deadline := c.sent + crowdTTL - 2*time.Millisecond
		must(fmt.Fprintf(c.log, "enter %s %d %d %d\n", id, token, start, deadline))
		work := rand.N(2 * time.Millisecond)
		if rand.IntN(20) == 0 {
			work *= 50
		}
		time.Sleep(work)
		must(fmt.Fprintf(c.log, "leave %s 0 %d 0\n", id, c.store.machine.elapsed()))
		must(c.store.Release(context.Background(), driver.Ref{Key: "k", ID: id}))
	}
}

// enter waits in the queue until it holds the key, or its ticket is gone.
func (c *contender) enter(id string) (token int64, ok bool) {
	c.sent = c.store.machine.elapsed()
	reply := must(c.store.Acquire(context.Background(), driver.Request{
		Key: "k", ID: id, TTL: crowdTTL, TicketTTL: 5 * time.Second, ConfirmWindow: 200 * time.Millisecond, HintAddress: c.address,
	}))
	for reply.State == driver.Queued {
		pause := 2 * time.Second
		if reply.Position == 1 && reply.RetryAfter > 0 {
			pause = min(pause, reply.RetryAfter)
		}
		c.listen(id, pause)
		c.sent = c.store.machine.elapsed()
		c.store.Renew(context.Background(), []driver.Ref{{
			Key: "k", ID: id, TTL: crowdTTL, TicketTTL: 5 * time.Second, HintAddress: c.address,
		}}, func(_ int, r driver.Reply, err error) { reply = must(r, err) })
	}
	return reply.Token, reply.State == driver.Granted
}

// listen returns when a hint for this ticket asks to, or after pause.
func (c *contender) listen(id string, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case h := <-c.hints:
			if h.ID == id && h.Kind == driver.HintAsk {
				timer.Reset(min(h.RetryAfter, pause))
			} else if h.ID == id || h.Kind == driver.HintResync {
				return
			}
		}
	}
}

// W1: contenders in 4 processes, holders killed at random.
func TestCrowd_OfKilledProcessesNeverHasTwoHolders(t *testing.T) {
	live.Test(t)
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	dir := t.TempDir()
	log := filepath.Join(t.TempDir(), "log")
	start := func() *process { return startHelper(t, "crowd", dir, log, "50") }
	processes := []*process{start(), start(), start(), start()}
	for range rounds {
		time.Sleep(200*time.Millisecond + rand.N(400*time.Millisecond)) // the instant of the crash is the test's input
		i := rand.IntN(len(processes))
		if rand.IntN(3) > 0 {
			eventually(t, "the key has a holder", func() bool {
				pid := holder(log)
				i = slices.IndexFunc(processes, func(p *process) bool { return p.Process.Pid == pid })
				return i >= 0
			})
		}
		processes[i].kill()
		processes[i] = start()
	}
	for _, p := range processes {
		_ = p.stdin.Close()
	}
	for _, p := range processes {
		out, _ := io.ReadAll(p.lines)
		if err := p.Wait(); err != nil {
			t.Errorf("a process ended with %v: %s", err, out)
		}
	}
	judge(t, log, rounds)

	// The store keeps marks of processes with a lapsed hand-over for a minute.
	now, err := thisMachine()
	if err != nil {
		t.Fatal(err)
	}
	later := now
	later.elapsed = func() time.Duration { return now.elapsed() + 2*time.Minute }
	s := open(t, dir, func(c *config) { c.machine = later })
	s.sweep()
	if left := append(files(t, s.tree.path("rooms")), files(t, s.tree.path("wake"))...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// holder returns the process that was the last to enter, if it has not left.
func holder(log string) (pid int) {
	raw, _ := os.ReadFile(log)
	last := raw[bytes.LastIndexByte(bytes.TrimSuffix(raw, []byte("\n")), '\n')+1:]
	_, _ = fmt.Sscanf(string(last), "enter %d-", &pid)
	return pid
}

// belief is the time in which a contender had the lease by its own clock.
type belief struct {
	id         string
	token      int64
	start, end time.Duration
	left       bool
}

// judge checks the logs of all contenders: leases do not overlap, and tokens rise.
func judge(t *testing.T, log string, atLeast int) {
	t.Helper()
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	byID := map[string]*belief{}
	var all []*belief
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var what, id string
		var token int64
		var start, end time.Duration
		if _, err := fmt.Sscan(lines.Text(), &what, &id, &token, &start, &end); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if what == "enter" {
			byID[id] = &belief{id: id, token: token, start: start, end: end}
			all = append(all, byID[id])
		} else {
			byID[id].end, byID[id].left = min(byID[id].end, start), true
		}
	}
	slices.SortFunc(all, func(a, b *belief) int { return cmp.Compare(a.start, b.start) })
	died := 0
	for i, b := range all {
		if !b.left {
			died++
		}
		if i == 0 || b.start >= b.end {
			continue
		}
		if before := all[i-1]; before.end > b.start || before.token >= b.token {
			t.Errorf("%+v overlaps or is not below %+v", *before, *b)
		}
	}
	t.Logf("%d grants, %d holders killed", len(all), died)
	if len(all) < atLeast {
		t.Errorf("%d grants: too few to prove much", len(all))
	}
}
