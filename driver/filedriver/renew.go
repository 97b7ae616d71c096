package filedriver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/room"
)

// Bounds of a batched renewal.
const (
	// renewBatch is how many records are renewed under one lock of a shard. To lock for each
	// record takes twice as long.
	renewBatch = 32
	// briefTimeout is how long renewals of other shards wait for a shard that is taken.
	briefTimeout = 5 * time.Millisecond
)

// VisitAll takes a step on the record of each key. If a stopped process holds up a shard, the steps
// in other shards go on.
func (t table) VisitAll(
	ctx context.Context, keys []string, step func(int) room.Step, taken func([]int, []room.Wake, []error),
) {
	v := visits{table: t, files: make([]roomFile, len(keys)), step: step, taken: taken}
	plan := make(map[*shard][]int)
	for i, key := range keys {
		v.files[i] = t.fileOf(key)
		plan[v.files[i].shard] = append(plan[v.files[i].shard], i)
	}
	var late sync.WaitGroup
	for sh, which := range plan {
		if rest := v.visit(ctx, sh, which, briefTimeout); len(rest) > 0 {
			late.Go(func() { v.visit(ctx, sh, rest, t.config.timeout) })
		}
	}
	late.Wait()
}

// visits is one call of VisitAll.
type visits struct {
	table
	files []roomFile
	step  func(int) room.Step
	taken func([]int, []room.Wake, []error)
}

// visit takes the steps in one shard. With briefTimeout it returns the rest if the shard stays
// locked.
func (v *visits) visit(ctx context.Context, sh *shard, which []int, patience time.Duration) (rest []int) {
	for len(which) > 0 {
		now := which[:min(renewBatch, len(which))]
		errs := make([]error, len(now))
		var wakes []room.Wake
		err := sh.lock.lock(ctx, patience)
		if errors.Is(err, errTaken) && patience == briefTimeout {
			return which
		}
		for n, i := range now {
			if errs[n] = err; err == nil {
				var more []room.Wake
				more, errs[n] = v.apply(ctx, v.files[i], "", "", v.step(i))
				wakes = append(wakes, more...)
			}
		}
		if err == nil {
			sh.lock.unlock()
			v.tick(len(now))
		}
		v.taken(now, wakes, errs)
		which = which[len(now):]
	}
	return nil
}
