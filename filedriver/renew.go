package filedriver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// Bounds of a batched renewal.
const (
	// together is how many renewals are made under one locking of a shard.
	together = 32
	// hurry is how long a taken shard keeps the renewals of other shards
	// waiting.
	hurry = 5 * time.Millisecond
)

// Renew implements [driver.Driver]. Renewals that are kept waiting by a stopped
// process do not hold up the others.
func (s *Store) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	byShard := make(map[*shard][]int)
	for i, ref := range refs {
		sh := s.shardOf(fileName(s.config.prefix + ref.Key))
		byShard[sh] = append(byShard[sh], i)
	}
	b := batch{store: s, refs: refs, each: each}
	var late sync.WaitGroup
	for sh, indexes := range byShard {
		if rest := b.renew(ctx, sh, indexes, hurry); len(rest) > 0 {
			late.Go(func() { b.renew(ctx, sh, rest, s.config.timeout) })
		}
	}
	late.Wait()
}

// batch is one call of Renew.
type batch struct {
	store *Store
	refs  []driver.Ref

	mu   sync.Mutex
	each func(int, driver.Reply, error) // guarded by mu
}

// renew makes the renewals of one shard. If the shard stays taken for all of
// hurry it returns those that are left.
func (b *batch) renew(ctx context.Context, sh *shard, indexes []int, patience time.Duration) (rest []int) {
	for len(indexes) > 0 {
		chunk := indexes[:min(together, len(indexes))]
		err := sh.lock.lock(ctx, patience)
		if errors.Is(err, errStuck) && patience == hurry {
			return indexes
		}
		indexes = indexes[len(chunk):]
		if err != nil {
			b.fail(chunk, err)
			continue
		}
		b.take(ctx, sh, chunk)
	}
	return nil
}

// take makes the renewals of chunk on a locked shard, unlocks it and reports.
func (b *batch) take(ctx context.Context, sh *shard, chunk []int) {
	replies := make([]driver.Reply, len(chunk))
	errs := make([]error, len(chunk))
	var wakes []room.Wake
	for n, i := range chunk {
		ref := b.refs[i]
		key := b.store.config.prefix + ref.Key
		var w []room.Wake
		w, errs[n] = b.store.take(ctx, sh, fileName(key), key, func(r *room.Record, now int64) (wakes []room.Wake) {
			replies[n], wakes = room.Renew(r, ref, now)
			return wakes
		})
		wakes = append(wakes, w...)
	}
	sh.lock.unlock()
	b.store.deliver(wakes)
	b.store.tick(len(chunk))
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, i := range chunk {
		reply, err := answer(replies[n], errs[n])
		b.each(i, reply, err)
	}
}

func (b *batch) fail(chunk []int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, i := range chunk {
		b.each(i, driver.Reply{}, err)
	}
}
