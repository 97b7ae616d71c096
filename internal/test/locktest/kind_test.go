package locktest_test

import (
	"context"
	"slices"

	"github.com/leasehold-go/leasehold"
)

// side is a lock of any kind, or one side of it.
type side struct {
	lock, try func(ctx context.Context) (*leasehold.Lease, error)
}

// use makes a lock of a client, on a key.
type use func(c *leasehold.Client, key string, opts ...leasehold.Option) side

func mutex(c *leasehold.Client, key string, opts ...leasehold.Option) side {
	m := c.Mutex(key, opts...)
	return side{m.Lock, m.TryLock}
}

func writer(c *leasehold.Client, key string, opts ...leasehold.Option) side {
	m := c.RWMutex(key, opts...)
	return side{m.Lock, m.TryLock}
}

func reader(c *leasehold.Client, key string, opts ...leasehold.Option) side {
	m := c.RWMutex(key, opts...)
	return side{m.RLock, m.TryRLock}
}

// places takes n of limit places.
func places(n, limit int) use {
	return func(c *leasehold.Client, key string, opts ...leasehold.Option) side {
		s := c.Semaphore(key, limit, opts...)
		return side{
			func(ctx context.Context) (*leasehold.Lease, error) { return s.LockN(ctx, n) },
			func(ctx context.Context) (*leasehold.Lease, error) { return s.TryLockN(ctx, n) },
		}
	}
}

// with is u with options of its own.
func (u use) with(own ...leasehold.Option) use {
	return func(c *leasehold.Client, key string, opts ...leasehold.Option) side {
		return u(c, key, append(slices.Clip(own), opts...)...)
	}
}

// kind describes the participants of a case of waiting.
type kind struct {
	name string
	ask  use // the use of the waiters
	// block is the use of the holder that they wait for.
	block use
	// rival is a use that excludes ask, and that a waiting asker keeps from joining block.
	rival use
	// together is how many askers can hold the lock at a time.
	together int
}

const anyNumber = 1 << 30

var kinds = []kind{
	{name: "mutex", ask: mutex, block: mutex, rival: mutex, together: 1},
	{name: "writer", ask: writer, block: reader, rival: reader, together: 1},
	{name: "reader", ask: reader, block: writer, rival: writer, together: anyNumber},
	{name: "place", ask: places(1, 3), block: places(3, 3), rival: places(3, 3), together: 3},
	{name: "places", ask: places(3, 3), block: places(1, 3), rival: places(1, 3), together: 1},
}

// parting are the kinds whose rival does not exclude the blocker: only a waiting asker keeps it
// out.
var parting = []kind{kinds[1], kinds[4]}

// each makes a row of each kind out of a case.
func each(name string, kinds []kind, run func(l *lab, k kind)) []row {
	var rows []row
	for _, k := range kinds {
		rows = append(rows, row{name + "/" + k.name, func(l *lab) { run(l, k) }})
	}
	return rows
}
