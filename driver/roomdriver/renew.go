package roomdriver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/room"
)

const (
	// batch is how many records one transaction of a Transactor renews at most.
	batch = 256
	// parallel is how many updates one renewal of many leases makes at the same time
	// where it has no transactions for them.
	parallel = 8
)

// Renew implements [driver.Driver]. The leases and tickets of one key are renewed in one
// step, and many keys by a few transactions if the table supports these. Renewals that the
// table has not answered when the context ends continue without the caller.
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	b := &renewal{d: d, refs: refs, each: each}
	if d.rooms != nil {
		b.run(ctx)
		return
	}
	b.refs = slices.Clone(refs) // the caller's may change when it has left
	for i := range b.refs {
		ref := &b.refs[i]
		ref.TTL, ref.TicketTTL = d.cfg.longer(ref.TTL), d.cfg.longer(ref.TicketTTL)
	}
	b.answered = make([]bool, len(refs))
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.run(ctx)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	if !soon(done) {
		b.leave(fmt.Errorf("the caller left before the table answered: %w", ctx.Err()))
	}
}

// renewal is one call of Renew.
type renewal struct {
	d    *Driver
	refs []driver.Ref

	mu       sync.Mutex
	each     func(int, driver.Reply, error) // guarded by mu; nil when the caller has left
	answered []bool                         // guarded by mu; nil if the caller cannot leave
}

func (b *renewal) run(ctx context.Context) {
	visits := b.plan()
	if err := b.d.usable(ctx); err != nil {
		b.report(err, visits...)
		return
	}
	visits = slices.DeleteFunc(visits, func(s *stop) bool {
		err := check.Key(s.key)
		if err != nil {
			b.report(err, s)
		}
		return err != nil
	})
	if all, ok := b.d.rooms.(batcher); ok {
		b.visitAll(ctx, all, visits)
		return
	}
	if b.d.tx == nil || len(visits) == 1 {
		b.single(ctx, visits)
		return
	}
	var rest []*stop
	for chunk := range slices.Chunk(visits, batch) {
		if err := b.d.usable(ctx); err != nil { // the table may be closed by now
			b.report(err, chunk...)
			continue
		}
		rest = append(rest, b.together(ctx, chunk)...)
	}
	b.single(ctx, rest)
}

// leave reports err for the refs without an answer. Later answers are dropped.
func (b *renewal) leave(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, answered := range b.answered {
		if !answered {
			b.each(i, driver.Reply{}, err)
		}
	}
	b.each = nil
}

// stop is the work of a renewal at one key.
type stop struct {
	visit
	refs    []driver.Ref // of the renewal
	indexes []int        // of the refs that have the key
	replies []driver.Reply
}

// plan sorts a renewal by key.
func (b *renewal) plan() (stops []*stop) {
	n := len(b.refs)
	all, indexes, byKey := make([]stop, n), make([]int, n), make(map[string]*stop, n)
	stops = make([]*stop, 0, n)
	for i, ref := range b.refs {
		s := byKey[ref.Key]
		if s == nil {
			s = &all[i]
			*s = stop{visit: visit{key: ref.Key}, refs: b.refs, indexes: indexes[i : i : i+1]} // most have one
			byKey[ref.Key] = s
			stops = append(stops, s)
		}
		s.indexes = append(s.indexes, i)
	}
	slices.SortFunc(stops, func(x, y *stop) int { return cmp.Compare(x.key, y.key) })
	return stops
}

func (s *stop) Step(r *room.Record, now int64) (wakes []room.Wake, _ error) {
	s.replies = s.replies[:0]
	for _, i := range s.indexes {
		reply, more := room.Renew(r, s.refs[i], now)
		s.replies, wakes = append(s.replies, reply), append(wakes, more...)
	}
	return wakes, nil
}

func (s *stop) settle(now time.Time, guess, token int64) {
	for i := range s.replies {
		settle(&s.replies[i], now, guess, token)
	}
}

// together makes stops in one transaction, and returns the stops that it left out.
func (b *renewal) together(ctx context.Context, stops []*stop) (rest []*stop) {
	calls := make([]call, len(stops))
	for i, s := range stops {
		calls[i] = s
	}
	skipped := b.d.transact(ctx, calls)
	for i, s := range stops {
		if skipped[i] {
			rest = append(rest, s)
		} else {
			b.report(s.err, s)
		}
	}
	return rest
}

// single makes stops one by one, several at the same time.
func (b *renewal) single(ctx context.Context, stops []*stop) {
	var wg sync.WaitGroup
	next := make(chan *stop, len(stops))
	for _, s := range stops {
		next <- s
	}
	close(next)
	work := func() {
		for s := range next {
			b.report(b.now(ctx, s), s)
		}
	}
	workers := min(parallel, len(stops))
	if b.d.rooms != nil {
		workers = 1 // memory answers at once
	}
	for range workers - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}

// now makes a stop, which waits for no other call.
func (b *renewal) now(ctx context.Context, s *stop) error {
	if err := b.d.usable(ctx); err != nil {
		return err
	}
	if b.d.rooms != nil {
		return b.d.visit(ctx, s)
	}
	return b.d.save(ctx, s)
}

// visitAll makes stops by batches of the rooms.
func (b *renewal) visitAll(ctx context.Context, all batcher, stops []*stop) {
	keys := make([]string, len(stops))
	for i, s := range stops {
		keys[i] = s.key
	}
	all.VisitAll(ctx, keys, func(i int) room.Step { return stops[i] }, func(which []int, wakes []room.Wake, errs []error) {
		b.d.send(ctx, wakes)
		for n, i := range which {
			b.report(errs[n], stops[i])
		}
	})
}

// report passes on the replies of stops, or err.
func (b *renewal) report(err error, stops ...*stop) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.each == nil {
		return
	}
	for _, s := range stops {
		for n, i := range s.indexes {
			if b.answered != nil {
				b.answered[i] = true
			}
			if err != nil {
				b.each(i, driver.Reply{}, err)
			} else {
				b.each(i, s.replies[n], nil)
			}
		}
	}
}
