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
	// together is how many rooms are renewed under one locking of a shard.
	together = 32
	// hurry is how long a taken shard keeps the renewals of other shards
	// waiting.
	hurry = 5 * time.Millisecond
)

// Renew implements [driver.Driver]. The leases and tickets of one room are
// renewed in one step. Renewals that are kept waiting by a stopped process do
// not hold up those of other rooms.
func (s *Driver) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	b := batch{store: s, refs: refs, each: each}
	var late sync.WaitGroup
	for sh, visits := range b.plan() {
		if rest := b.renew(ctx, sh, visits, hurry); len(rest) > 0 {
			late.Go(func() { b.renew(ctx, sh, rest, s.config.timeout) })
		}
	}
	late.Wait()
}

// batch is one call of Renew.
type batch struct {
	store *Driver
	refs  []driver.Ref

	mu   sync.Mutex
	each func(int, driver.Reply, error) // guarded by mu
}

// visit is what the batch has to do in one room.
type visit struct {
	key, name string
	indexes   []int // of refs
}

// plan sorts the batch by shard and room.
func (b *batch) plan() map[*shard][]*visit {
	plan := make(map[*shard][]*visit)
	rooms := make(map[string]*visit, len(b.refs))
	for i, ref := range b.refs {
		v := rooms[ref.Key]
		if v == nil {
			key := b.store.config.prefix + ref.Key
			v = &visit{key: key, name: fileName(key)}
			rooms[ref.Key] = v
			sh := b.store.shardOf(v.name)
			plan[sh] = append(plan[sh], v)
		}
		v.indexes = append(v.indexes, i)
	}
	return plan
}

// renew makes the renewals of one shard. If the shard stays taken for all of
// hurry it returns those that are left.
func (b *batch) renew(ctx context.Context, sh *shard, visits []*visit, patience time.Duration) (rest []*visit) {
	for len(visits) > 0 {
		now := visits[:min(together, len(visits))]
		err := sh.lock.lock(ctx, patience)
		if errors.Is(err, errStuck) && patience == hurry {
			return visits
		}
		visits = visits[len(now):]
		if err != nil {
			for _, v := range now {
				b.report(v, nil, err)
			}
			continue
		}
		b.take(ctx, sh, now)
	}
	return nil
}

// take makes visits to a locked shard, unlocks it and reports.
func (b *batch) take(ctx context.Context, sh *shard, visits []*visit) {
	replies := make([][]driver.Reply, len(visits))
	errs := make([]error, len(visits))
	var wakes []room.Wake
	for n, v := range visits {
		var more []room.Wake
		more, errs[n] = b.store.take(ctx, sh, v.name, v.key, "", func(r *room.Record, now int64) (wakes []room.Wake) {
			for _, i := range v.indexes {
				reply, w := room.Renew(r, b.refs[i], now)
				replies[n] = append(replies[n], reply)
				wakes = append(wakes, w...)
			}
			return wakes
		})
		wakes = append(wakes, more...)
	}
	sh.lock.unlock()
	b.store.deliver(wakes)
	b.store.tick(len(visits))
	for n, v := range visits {
		b.report(v, replies[n], errs[n])
	}
}

func (b *batch) report(v *visit, replies []driver.Reply, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, i := range v.indexes {
		if err != nil {
			b.each(i, driver.Reply{}, err)
		} else {
			b.each(i, replies[n], nil)
		}
	}
}
