//go:build unix

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Order has the parameters of a process. They are the first line of its input. The process
// works until its input ends.
type Order struct {
	Store    string // URL
	Proc     string
	History  string // path
	Register string // path of a socket; empty without tokens
	Plan     Plan
	Seed     uint64
}

// Work runs a process with a crowd: it reads its [Order], opens the store, and
// contends until the input ends.
func Work(in io.Reader, open func(rawURL string) (driver.Driver, error)) error {
	input := bufio.NewReader(in)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return err
	}
	var o Order
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, input)
		cancel()
	}()
	return o.work(ctx, open)
}

func (o *Order) work(ctx context.Context, open func(string) (driver.Driver, error)) error {
	sink, err := history.Append(o.History)
	if err != nil {
		return err
	}
	defer sink.Close()
	crowd := &Crowd{Proc: o.Proc, Plan: o.Plan, Sink: sink, Now: Now, Seed: o.Seed}
	if o.Register != "" {
		if crowd.Register, err = dialRegister(o.Register); err != nil {
			return err
		}
	}
	pulse, stop := context.WithCancel(context.Background()) // until all leases are released
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		feel(pulse, o.Proc, sink)
	}()
	defer func() { stop(); <-stopped }()

	before := runtime.NumGoroutine()
	d, err := open(o.Store)
	if err != nil {
		return err
	}
	if len(crowd.Plan.Kinds) == 0 {
		crowd.Plan.Kinds = Kinds(d)
	}
	if o.Plan.Faulty > 0 {
		d = Wrap(d, Faults{
			Part: o.Plan.Faulty, Delay: o.Plan.TTL, Proc: o.Proc, Sink: sink, Now: Now, Seed: o.Seed,
		})
	}
	if crowd.Client, err = leasehold.New(d); err != nil {
		return err
	}
	crowd.Run(ctx)
	if err := crowd.Client.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	// The goroutine of the input is blocked in it, or has ended.
	sink.Add(history.Record{At: Now(), Proc: o.Proc, What: history.Bye, Note: settle(before)})
	return nil
}

// Now reads the kernel's monotonic clock, which all processes of the machine share.
func Now() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // there is no system without it
	}
	return now.Nano()
}

// settle waits until no more than n goroutines run, and returns the stacks if more
// remain. A client that is dialling takes seconds until it gives up, and a busy
// machine adds some.
func settle(n int) string {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if runtime.NumGoroutine() <= n {
			return ""
		}
	}
	stacks := make([]byte, 1<<16)
	return fmt.Sprintf("%d instead of %d:\n%s", runtime.NumGoroutine(), n, stacks[:runtime.Stack(stacks, true)])
}

// A process that is stopped, or starved by a busy machine, detects that by a late
// timer, and records a fault: the lock is not to blame for missed deadlines during
// that time.
const (
	beat    = 50 * time.Millisecond
	tooLate = 200 * time.Millisecond
)

// feel records when the process stood still, until ctx ends.
func feel(ctx context.Context, proc string, sink history.Sink) {
	for last := Now(); timing.Sleep(ctx, beat); {
		now := Now()
		if now-last > int64(beat+tooLate) {
			sink.Add(history.Record{At: now, Since: last, Proc: proc, What: history.Fault, Note: "stall"})
		}
		last = now
	}
}
