package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Faults describes faults of requests between a client and its driver. They need no
// change to a server.
type Faults struct {
	// Part is the fraction of requests with a fault.
	Part float64
	// Delay bounds the delay of a request or a reply.
	Delay time.Duration
	Proc  string
	Sink  history.Sink
	Now   func() int64
	Seed  uint64
	// Dead reports whether the client has died, if it can: then neither requests nor hints
	// pass.
	Dead func() bool
}

var (
	// errLost is the error of a lost request or reply: its outcome is unknown.
	errLost = errors.New("connection reset")
	errDead = fmt.Errorf("%w: the process is dead", driver.ErrInvalid)
)

// Wrap returns a driver that adds faults to d, which sends hints. A renewal is one request for all of its
// leases.
func Wrap(d driver.Driver, f Faults) driver.Driver {
	w := &faulty{Faults: f, rnd: rand.New(rand.NewPCG(f.Seed, 1))}
	w.Driver = intercept.New(d, w.through)
	w.Hint = w.hint
	return w
}

type faulty struct {
	*intercept.Driver
	Faults
	strays sync.WaitGroup

	mu  sync.Mutex
	rnd *rand.Rand
}

// Supports implements [driver.Limited].
func (f *faulty) Supports(req driver.Request) error { return driver.Supports(f.Store(), req) }

// through sends a request under a fault. Close waits for requests that are still on their way.
func (f *faulty) through(ctx context.Context, m *intercept.Message, send func(context.Context) error) error {
	if m.Verb == intercept.Close {
		f.strays.Wait()
		return send(ctx)
	}
	return f.suffer(ctx, f.draw(requestFaults), send)
}

// fault is the fault of one request.
type fault struct {
	name  string
	since int64
	late  time.Duration
}

var requestFaults = []string{
	"request lost", "reply lost", "request late", "reply late", "request hangs", "reply hangs", "request strays",
}

// draw draws the fault of a request; its name is empty if there is no fault.
func (f *faulty) draw(names []string) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rnd.Float64() >= f.Part {
		return fault{}
	}
	return fault{names[f.rnd.IntN(len(names))], f.Now(), time.Duration(f.rnd.Int64N(int64(f.Delay)))}
}

func (f *faulty) over(what fault) {
	f.Sink.Add(history.Record{
		At: f.Now(), Since: what.since, Proc: f.Proc, What: history.Fault, Note: what.name,
	})
}

func (f *faulty) dead() bool { return f.Dead != nil && f.Dead() }

// suffer makes a request under the fault.
func (f *faulty) suffer(ctx context.Context, what fault, ask func(context.Context) error) error {
	do := func(ctx context.Context) error {
		if f.dead() {
			return errDead
		}
		return ask(ctx)
	}
	if what.name == "" {
		return do(ctx)
	}
	defer f.over(what)
	switch what.name {
	case "request lost":
		return errLost
	case "reply lost":
		_ = do(ctx)
		return errLost
	case "request late":
		timing.Sleep(ctx, what.late)
		return do(ctx)
	case "reply late":
		err := do(ctx)
		if !timing.Sleep(ctx, what.late) {
			return fmt.Errorf("%w: %w", errLost, ctx.Err())
		}
		return err
	case "reply hangs":
		_ = do(ctx)
	case "request strays":
		// It reaches the store after the client has given up.
		f.strays.Go(func() {
			time.Sleep(what.late)
			_ = do(context.Background())
		})
		return errLost
	}
	<-ctx.Done()
	return ctx.Err()
}

var hintFaults = []string{"hint lost", "hint late", "hint doubled"}

// hint delivers a hint, or loses, delays or doubles it.
func (f *faulty) hint(h driver.Hint, hear func(driver.Hint)) {
	tell := func() {
		if !f.dead() {
			hear(h)
		}
	}
	what := f.draw(hintFaults)
	switch what.name {
	case "hint lost":
		f.over(what)
	case "hint late":
		f.strays.Go(func() {
			time.Sleep(what.late)
			tell()
			f.over(what)
		})
	case "hint doubled":
		tell()
		f.over(what)
		tell()
	default:
		tell()
	}
}
