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
	// renewBatch is how many records are renewed under one lock of a shard. Package
	// roomdriver over files locks for each record, and takes twice as long.
	renewBatch = 32
	// briefTimeout is how long renewals of other shards wait for a shard that is taken.
	briefTimeout = 5 * time.Millisecond
)

// Renew renews leases, confirms grants and keeps places in the queue; refs of one key
// take one step. It calls each once for every ref, by its index, never concurrently. If a
// stopped process holds up a shard, the renewals of the other shards go on. See
// [driver.Driver].
func (s *Driver) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	b := renewal{store: s, refs: refs, each: each}
	var late sync.WaitGroup
	for sh, visits := range b.plan() {
		if rest := b.renew(ctx, sh, visits, briefTimeout); len(rest) > 0 {
			late.Go(func() { b.renew(ctx, sh, rest, s.config.timeout) })
		}
	}
	late.Wait()
}

// renewal is one call of Renew.
type renewal struct {
	store *Driver
	refs  []driver.Ref

	mu   sync.Mutex
	each func(int, driver.Reply, error) // guarded by mu
}

// keyRenewal is the part of a renewal that concerns one key.
type keyRenewal struct {
	key, name string
	indexes   []int // of refs
}

// plan sorts the refs by shard and key.
func (b *renewal) plan() map[*shard][]*keyRenewal {
	plan := make(map[*shard][]*keyRenewal)
	rooms := make(map[string]*keyRenewal, len(b.refs))
	for i, ref := range b.refs {
		v := rooms[ref.Key]
		if v == nil {
			key := b.store.config.prefix + ref.Key
			v = &keyRenewal{key: key, name: fileName(key)}
			rooms[ref.Key] = v
			sh := b.store.shardOf(v.name)
			plan[sh] = append(plan[sh], v)
		}
		v.indexes = append(v.indexes, i)
	}
	return plan
}

// renew renews the leases of one shard. With briefTimeout it returns the rest if the shard
// stays locked.
func (b *renewal) renew(ctx context.Context, sh *shard, visits []*keyRenewal, patience time.Duration) (rest []*keyRenewal) {
	for len(visits) > 0 {
		now := visits[:min(renewBatch, len(visits))]
		err := sh.lock.lock(ctx, patience)
		if errors.Is(err, errTaken) && patience == briefTimeout {
			return visits
		}
		visits = visits[len(now):]
		if err != nil {
			for _, v := range now {
				b.report(v, nil, err)
			}
			continue
		}
		b.apply(ctx, sh, now)
	}
	return nil
}

// apply makes renewals in a locked shard, unlocks it and reports.
func (b *renewal) apply(ctx context.Context, sh *shard, visits []*keyRenewal) {
	replies := make([][]driver.Reply, len(visits))
	errs := make([]error, len(visits))
	var wakes []room.Wake
	for n, v := range visits {
		var more []room.Wake
		more, errs[n] = b.store.apply(ctx, sh, v.name, v.key, "", func(r *room.Record, now int64) (wakes []room.Wake) {
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

func (b *renewal) report(v *keyRenewal, replies []driver.Reply, err error) {
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
