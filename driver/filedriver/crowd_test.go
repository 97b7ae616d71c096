//go:build unix

package filedriver

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
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

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/live"
)

func init() { helpers["crowd"] = crowd }

const crowdTTL = 300 * time.Millisecond

// crowd is a process of several contenders.
func crowd(args []string) {
	// All contenders may want the file lock at once. On a busy machine they have it
	// in turn, but the last of them not within the two seconds of the default.
	s := must(Open(args[0], WithTimeout(30*time.Second)))
	client := must(leasehold.New(s))
	log := must(os.OpenFile(args[1], os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600))
	var stop atomic.Bool
	var all sync.WaitGroup
	for range must(strconv.Atoi(args[2])) {
		all.Go(func() {
			for !stop.Load() {
				contend(client, log, s.machine.elapsed)
			}
		})
	}
	awaitEOF()
	stop.Store(true)
	all.Wait()
	must(0, client.Close())
}

// contend takes the key "k" and logs from when to when it has the lease, by the machine's own
// clock.
func contend(client *leasehold.Client, log *os.File, elapsed func() time.Duration) {
	lease := must(client.Mutex("k", leasehold.WithTTL(crowdTTL), leasehold.WithoutRenewal()).Lock(context.Background()))
	start := elapsed()
	id := fmt.Sprint(os.Getpid(), "-", lease.ID())
	must(fmt.Fprintf(log, "enter %s %d %d %d\n", id, lease.Token(), start, start+lease.Remaining()))
	work := rand.N(2 * time.Millisecond)
	if rand.IntN(20) == 0 {
		work *= 50
	}
	time.Sleep(work)
	must(fmt.Fprintf(log, "leave %s 0 %d 0\n", id, elapsed()))
	if err := lease.Release(); err != nil && !errors.Is(err, leasehold.ErrLost) {
		must(0, err)
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
	noError(t, err)
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
	noError(t, err)
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
