//go:build unix

package chaos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Game is a store, the clients that contend in it, and the faults of both.
type Game struct {
	// Command returns a process that calls [Work].
	Command func() *exec.Cmd
	// Dir is the directory of the history.
	Dir string
	// Stores are URLs of one store, which Label names. The processes use them in turn.
	Stores    []string
	Label     string
	Rules     history.Rules
	Plan      Plan
	Processes int
	Lasting   time.Duration
	// Calm is the mean time between two faults of one kind of victim in a
	// storm. Storms alternate with lulls, in which the checker can check the
	// promises for undisturbed clients.
	Calm time.Duration
	Seed uint64
	// Havoc lists the faults of the store.
	Havoc []Havoc
	// Observe records faults of the store that the game has not made, until ctx ends.
	Observe func(ctx context.Context, note func(history.Record))
	// Look is the URL of the store without faults of the network; the first of Stores by default.
	Look string
	// Open opens the store at the end, to look for records that are left.
	Open func(rawURL string) (driver.Driver, error)
	Log  func(format string, args ...any)
}

// Havoc is a fault of the store or of the network.
type Havoc struct {
	Name string
	// Forgets is the kind of data that the store loses.
	Forgets string
	// Weight is its relative frequency; 0 counts as 1.
	Weight int
	// Do makes the fault and heals it before it returns.
	Do func(rnd *rand.Rand) error
}

// Play runs the game and returns the path of its history. It returns an error if
// the game could not be played, or if a process did not end.
func (g *Game) Play(ctx context.Context) (string, error) {
	path := filepath.Join(g.Dir, "history.jsonl")
	sink, err := history.Create(path)
	if err != nil {
		return "", err
	}
	defer sink.Close()
	desk, err := openDesk()
	if err != nil {
		return "", err
	}
	defer desk.close()
	p := &play{Game: g, sink: sink, desk: desk, path: path, started: time.Now()}
	return path, errors.Join(p.run(ctx), p.look(ctx))
}

type play struct {
	*Game
	sink *history.Writer
	desk *desk
	path string

	started time.Time
	mu      sync.Mutex
	procs   []*process
	spawned int
	errs    []error
}

// process is a crowd that runs, or has run.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  bytes.Buffer
	done  chan struct{}
	err   error // valid after done is closed
	// killed is set before the game kills it.
	killed bool
}

func (p *play) run(ctx context.Context) error {
	for range p.Processes {
		proc, err := p.spawn()
		if err != nil {
			return errors.Join(err, p.dismiss())
		}
		p.procs = append(p.procs, proc)
	}
	// Stalls and spontaneous faults of the store are recorded until the last process has
	// ended, also while leases are released and the last fault is healed.
	watching, enough := context.WithCancel(ctx)
	defer enough()
	var watch sync.WaitGroup
	watch.Go(func() { feel(watching, "", p.sink) })
	if p.Observe != nil {
		watch.Go(func() { p.Observe(watching, p.sink.Add) })
	}
	playing, cancel := context.WithTimeout(ctx, p.Lasting)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { p.harass(playing, rand.New(rand.NewPCG(p.Seed, 100))) })
	if len(p.Havoc) > 0 {
		wg.Go(func() { p.wreak(playing, rand.New(rand.NewPCG(p.Seed, 200))) })
	}
	wg.Go(func() { p.report(playing) })
	wg.Wait()
	err := p.dismiss()
	enough()
	watch.Wait()
	return errors.Join(err, errors.Join(p.errs...))
}

// report logs the progress of the game every minute.
func (p *play) report(ctx context.Context) {
	for timing.Sleep(ctx, time.Minute) {
		p.Log("%s: %v of %v", p.Label, time.Since(p.started).Round(time.Second), p.Lasting)
	}
}

func (p *play) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs = append(p.errs, err)
}

// spawn starts a process.
func (p *play) spawn() (*process, error) {
	p.spawned++
	proc := &process{name: fmt.Sprintf("p%d", p.spawned), cmd: p.Command(), done: make(chan struct{})}
	o := Order{Store: p.Stores[p.spawned%len(p.Stores)], Proc: proc.name, History: p.path, Plan: p.Plan, Seed: p.Seed + uint64(p.spawned)}
	if p.Rules.Tokens {
		o.Register = p.desk.path()
	}
	order, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if proc.stdin, err = proc.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	proc.cmd.Stdout, proc.cmd.Stderr = &proc.said, &proc.said
	if err := proc.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		proc.err = proc.cmd.Wait()
		close(proc.done)
	}()
	_, err = proc.stdin.Write(append(order, '\n'))
	return proc, err
}

// A storm lasts for most of each period.
const (
	period = 40 * time.Second
	storm  = 24 * time.Second
)

// weather waits for the next fault, and reports whether there is one.
func (p *play) weather(ctx context.Context, rnd *rand.Rand) bool {
	if age := time.Since(p.started) % period; age > storm && !timing.Sleep(ctx, period-age) {
		return false
	}
	return timing.Sleep(ctx, exponential(rnd, p.Calm))
}

// farewell bounds the time in which a process must end. It cancels its waits and
// releases its leases.
const farewell = 90 * time.Second

// dismiss ends every process, and returns the errors of those ends.
func (p *play) dismiss() error {
	var errs []error
	for _, proc := range p.procs {
		_ = proc.stdin.Close()
	}
	for _, proc := range p.procs {
		select {
		case <-proc.done:
		case <-time.After(farewell):
			// QUIT makes it print its stacks.
			_ = proc.cmd.Process.Signal(syscall.SIGQUIT)
			<-proc.done
			errs = append(errs, fmt.Errorf("%s did not end in %v", proc.name, farewell))
		}
		if proc.err != nil && !proc.killed {
			errs = append(errs, fmt.Errorf("%s: %w\n%s", proc.name, proc.err, proc.said.String()))
		}
	}
	return errors.Join(errs...)
}

// harass stops and kills processes until ctx ends.
func (p *play) harass(ctx context.Context, rnd *rand.Rand) {
	for p.weather(ctx, rnd) {
		i := p.victim(rnd)
		proc := p.procs[i]
		since := Now()
		note := "stop a client"
		switch rnd.IntN(2) {
		case 0:
			// The pause may be shorter or longer than a lease.
			_ = proc.cmd.Process.Signal(syscall.SIGSTOP)
			timing.Sleep(ctx, time.Duration(rnd.Int64N(int64(2*p.Plan.TTL))))
			_ = proc.cmd.Process.Signal(syscall.SIGCONT)
		case 1:
			note = "kill a client"
			proc.killed = true
			_ = proc.cmd.Process.Kill()
			<-proc.done
			fresh, err := p.spawn()
			if err != nil {
				p.fail(err)
				return
			}
			p.procs[i] = fresh
		}
		p.sink.Add(history.Record{At: Now(), Since: since, Proc: proc.name, What: history.Fault, Note: note})
	}
}

// victim draws a process: any, or the one that most likely holds a lock.
func (p *play) victim(rnd *rand.Rand) int {
	last, i := p.desk.Last(), rnd.IntN(len(p.procs))
	if rnd.IntN(2) == 0 {
		for k, proc := range p.procs {
			if proc.name == last {
				return k
			}
		}
	}
	return i
}

// wreak makes faults of the store until ctx ends.
func (p *play) wreak(ctx context.Context, rnd *rand.Rand) {
	var urn []Havoc
	for _, h := range p.Havoc {
		for range max(h.Weight, 1) {
			urn = append(urn, h)
		}
	}
	for p.weather(ctx, rnd) {
		h := urn[rnd.IntN(len(urn))]
		since := Now()
		err := h.Do(rnd)
		p.sink.Add(history.Record{At: Now(), Since: since, What: history.Fault, Note: h.Name, Forgets: h.Forgets})
		if err != nil {
			p.fail(fmt.Errorf("%s: %w", h.Name, err))
			return
		}
	}
}

// lifetime bounds how long locks of killed processes may stay in the store.
const lifetime = 90 * time.Second

// look waits until the locks of killed processes have ended, and records the locks that
// are left.
func (p *play) look(ctx context.Context) error {
	d, err := p.Open(cmp.Or(p.Look, p.Stores[0]))
	if err != nil {
		return err
	}
	defer d.Close()
	store, ok := driver.As[driver.Inspector](d)
	if !ok {
		return nil
	}
	note := ""
	for end := time.Now().Add(lifetime); time.Now().Before(end); {
		note = remains(ctx, store, p.Plan.Prefix)
		if note == "" || !timing.Sleep(ctx, 200*time.Millisecond) {
			break
		}
	}
	p.sink.Add(history.Record{At: Now(), What: history.Left, Note: note})
	return nil
}

// remains lists the locks that are in use.
func remains(ctx context.Context, store driver.Inspector, prefix string) string {
	var all []string
	for cursor := ""; ; {
		keys, next, err := store.List(ctx, prefix, cursor)
		if err != nil {
			return err.Error()
		}
		if all = append(all, keys...); next == "" {
			return strings.Join(all, " ")
		}
		cursor = next
	}
}
