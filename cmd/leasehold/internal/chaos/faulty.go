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

// Wrap returns a driver that adds faults to d.
func Wrap(d driver.Driver, f Faults) driver.Driver {
	w := &faulty{Driver: d, Faults: f, rnd: rand.New(rand.NewPCG(f.Seed, 1))}
	if watcher, ok := driver.As[driver.Watcher](d); ok {
		return &deaf{w, watcher}
	}
	return w
}

type faulty struct {
	driver.Driver
	Faults
	strays sync.WaitGroup

	mu  sync.Mutex
	rnd *rand.Rand
}

// Supports implements [driver.Limited].
func (f *faulty) Supports(req driver.Request) error { return driver.Supports(f.Driver, req) }

// Close waits for requests that are still on their way.
func (f *faulty) Close() error {
	f.strays.Wait()
	return f.Driver.Close()
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
func (f *faulty) suffer(ctx context.Context, what fault, ask func(context.Context) (driver.Reply, error)) (driver.Reply, error) {
	do := func(ctx context.Context) (driver.Reply, error) {
		if f.dead() {
			return driver.Reply{}, errDead
		}
		return ask(ctx)
	}
	if what.name == "" {
		return do(ctx)
	}
	defer f.over(what)
	switch what.name {
	case "request lost":
		return driver.Reply{}, errLost
	case "reply lost":
		_, _ = do(ctx)
		return driver.Reply{}, errLost
	case "request late":
		timing.Sleep(ctx, what.late)
		return do(ctx)
	case "reply late":
		reply, err := do(ctx)
		if !timing.Sleep(ctx, what.late) {
			return driver.Reply{}, fmt.Errorf("%w: %w", errLost, ctx.Err())
		}
		return reply, err
	case "reply hangs":
		_, _ = do(ctx)
	case "request strays":
		// It reaches the store after the client has given up.
		f.strays.Go(func() {
			time.Sleep(what.late)
			_, _ = do(context.Background())
		})
		return driver.Reply{}, errLost
	}
	<-ctx.Done()
	return driver.Reply{}, ctx.Err()
}

func (f *faulty) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	return f.suffer(ctx, f.draw(requestFaults), func(ctx context.Context) (driver.Reply, error) { return f.Driver.Acquire(ctx, req) })
}

func (f *faulty) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	return f.suffer(ctx, f.draw(requestFaults), func(ctx context.Context) (driver.Reply, error) { return f.Driver.Release(ctx, ref) })
}

// Renew draws one fault for the batch, because a batch is one request to the server.
func (f *faulty) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	what := f.draw(requestFaults)
	if what.name == "" && !f.dead() {
		f.Driver.Renew(ctx, refs, each)
		return
	}
	replies, errs := make([]driver.Reply, len(refs)), make([]error, len(refs))
	_, err := f.suffer(ctx, what, func(ctx context.Context) (driver.Reply, error) {
		f.Driver.Renew(ctx, refs, func(i int, reply driver.Reply, err error) { replies[i], errs[i] = reply, err })
		return driver.Reply{}, nil
	})
	if err != nil {
		for i := range refs {
			each(i, driver.Reply{}, err)
		}
		return
	}
	for i := range refs {
		each(i, replies[i], errs[i])
	}
}

// deaf is a faulty driver whose hints are lost, late or doubled as well.
type deaf struct {
	*faulty
	watcher driver.Watcher
}

var hintFaults = []string{"hint lost", "hint late", "hint doubled"}

// Watch implements [driver.Watcher].
func (d *deaf) Watch(hear func(driver.Hint)) (driver.Subscription, error) {
	var mu sync.Mutex // one hint at a time, late ones too
	tell := func(h driver.Hint) {
		mu.Lock()
		defer mu.Unlock()
		if !d.dead() {
			hear(h)
		}
	}
	return d.watcher.Watch(func(h driver.Hint) {
		what := d.draw(hintFaults)
		switch what.name {
		case "hint lost":
			d.over(what)
			return
		case "hint late":
			d.strays.Go(func() {
				time.Sleep(what.late)
				tell(h)
				d.over(what)
			})
			return
		case "hint doubled":
			tell(h)
			d.over(what)
		}
		tell(h)
	})
}
