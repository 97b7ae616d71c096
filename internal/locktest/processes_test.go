package locktest_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/filedriver"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/stores"
)

// W1 with processes: this test binary runs itself as the contenders, which are
// killed and stopped while they hold the lock. They tell on their output what
// they believe, with times of the clock that they share.

const (
	helperEnv   = "LEASEHOLD_LOCKTEST_STORE"
	processes   = 4
	contenders  = 50
	crowdLasts  = 8 * time.Second
	processLife = 400 * time.Millisecond // of leases
)

func TestProcesses_W1_OnRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w1(t, server.URL(), onGoRedis(t, server.Addr()))
	endsByItself(t, server)
}

func TestProcesses_W1_OnADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := filedriver.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	w1(t, "file://"+dir, d)
}

// helper contends for the lock until its input ends.
func helper(url string) int {
	d, err := stores.Open(url)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	client, err := leasehold.New(d, leasehold.WithTTL(processLife))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var wg sync.WaitGroup
	for range contenders {
		wg.Go(func() { contend(ctx, client) })
	}
	wg.Wait()
	if err := client.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func contend(ctx context.Context, client *leasehold.Client) {
	for ctx.Err() == nil {
		lease, err := client.Mutex("w1").Lock(ctx)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, leasehold.ErrUnknown) && !errors.Is(err, leasehold.ErrUnavailable) {
				fmt.Fprintln(os.Stderr, err)
			}
			continue
		}
		// The time is read before the look, so that what is seen was true then.
		word := "grant"
		for end := time.Now().Add(rand.N(4 * time.Millisecond)); ; time.Sleep(500 * time.Microsecond) {
			now := time.Now()
			if lease.Context().Err() != nil {
				break
			}
			fmt.Printf("%s %d %d\n", word, lease.Token(), now.UnixMicro())
			if word = "belief"; now.After(end) {
				break
			}
		}
		if err := lease.Release(); err != nil && !errors.Is(err, leasehold.ErrLost) && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// sighting is what one contender said.
type sighting struct {
	token, first, last int64
}

// arena runs the processes and listens to them.
type arena struct {
	t   *testing.T
	url string

	mu    sync.Mutex
	seen  map[int64]*sighting // by token
	chief *exec.Cmd           // who spoke last
	twice []int64             // tokens of two grants
	wg    sync.WaitGroup
}

func w1(t *testing.T, url string, d driver.Driver) {
	a := &arena{t: t, url: url, seen: make(map[int64]*sighting)}
	var running []*process
	for range processes {
		running = append(running, a.spawn())
	}
	kills, stops := 0, 0
	for end := time.Now().Add(crowdLasts); time.Now().Before(end); {
		time.Sleep(100*time.Millisecond + rand.N(400*time.Millisecond))
		a.mu.Lock()
		chief := a.chief // most likely it holds the lock at this moment
		a.mu.Unlock()
		i := slices.IndexFunc(running, func(p *process) bool { return p.cmd == chief })
		if i < 0 {
			continue
		}
		if (kills+stops)%3 == 2 {
			stops++
			running[i].signal(syscall.SIGSTOP)
			time.Sleep(processLife + rand.N(processLife))
			running[i].signal(syscall.SIGCONT)
			continue
		}
		kills++
		running[i].signal(syscall.SIGKILL)
		running[i] = a.spawn()
	}
	for _, p := range running {
		_ = p.stdin.Close()
	}
	a.wg.Wait()
	a.judge()
	t.Logf("%d grants, %d holders killed, %d stopped", len(a.seen), kills, stops)
	if len(a.seen) < 10 || kills == 0 {
		t.Errorf("too little happened: %d grants, %d kills", len(a.seen), kills)
	}
	a.nothingLeft(d)
}

type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

func (a *arena) spawn() *process {
	a.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+a.url)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = cmd.Process.Kill() })
	a.wg.Go(func() {
		a.listen(cmd, stdout)
		_ = cmd.Wait() // most of them are killed
		if complaints.Len() > 0 {
			a.t.Errorf("a contender says: %s", complaints.String())
		}
	})
	return &process{cmd, stdin}
}

// listen notes what a process says. A line that was cut off by its death is
// dropped.
func (a *arena) listen(cmd *exec.Cmd, from io.Reader) {
	for in := bufio.NewReader(from); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		var word string
		var s sighting
		if _, err := fmt.Sscan(line, &word, &s.token, &s.last); err != nil {
			a.t.Errorf("a contender says %q: %v", line, err)
			continue
		}
		s.first = s.last
		a.mu.Lock()
		a.chief = cmd
		switch old := a.seen[s.token]; {
		case old == nil:
			a.seen[s.token] = &s
		case word == "grant":
			a.twice = append(a.twice, s.token)
		default:
			old.last = max(old.last, s.last)
		}
		a.mu.Unlock()
	}
}

// judge holds what was said against the promises: whoever believes to hold the
// lock has a greater token than all who believed it before, and nobody believes
// it any more.
func (a *arena) judge() {
	a.t.Helper()
	if len(a.twice) > 0 {
		a.t.Errorf("tokens granted twice: %v", a.twice)
	}
	var all []*sighting
	for _, s := range a.seen {
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y *sighting) int { return cmp.Compare(x.token, y.token) })
	for i := range all[1:] {
		before, after := all[i], all[i+1]
		if before.last > after.first {
			a.t.Errorf("token %d was believed in until %d µs after the grant of %d", before.token, before.last-after.first, after.token)
		}
		after.last = max(after.last, before.last)
	}
}

func (a *arena) nothingLeft(d driver.Driver) {
	a.t.Helper()
	defer d.Close()
	var keys []string
	for end := time.Now().Add(25 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		var err error
		if keys, _, err = d.(driver.Inspector).List(context.Background(), "", ""); err == nil && len(keys) == 0 {
			return
		}
	}
	a.t.Errorf("left behind: %q", keys)
}
