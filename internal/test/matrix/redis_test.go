package matrix_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redisroom"
	"github.com/leasehold-go/leasehold/internal/test/teststore"
)

// keyspace is a shelf of Redis keys, with the scripts of the driver in the interpreter of
// the microscope. Its clock is that of the bubble unless it is turned.
type keyspace struct {
	*teststore.Redis
	*dial
}

func newKeyspace() *keyspace {
	d := new(dial)
	return &keyspace{teststore.NewRedis(d.now), d}
}

func (k *keyspace) join() store { return k.Join() }

// open returns a client of the driver with faults for its commands.
func (k *keyspace) open(w *weather) *redisroom.Store {
	main, renew := &connection{weather: w, server: k}, &connection{weather: w, server: k}
	return redisroom.New(redisroom.Config{Main: main, Renew: renew, Prefix: "p:", Timeout: redisroom.DefaultTimeout})
}

// connection is a client of a keyspace, as the driver needs it.
type connection struct {
	redisroom.Client // for the methods that the driver does not call
	*weather
	server *keyspace

	mu    sync.Mutex
	up    bool   // it is connected
	since uint64 // to the server after so many restarts
}

// isUp reports whether a connection is there, or makes it if there can be one.
func (c *connection) isUp(can bool) bool {
	restarts := c.Changes()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.up = c.up && c.since == restarts || can; can {
		c.since = restarts
	}
	return c.up
}

// Connect implements [redisroom.Client].
func (c *connection) Connect(int) { c.isUp(!c.cannotDial()) }

func (c *connection) Cluster() bool { return false }
func (c *connection) Cut()          {}
func (c *connection) Close() error  { return nil }

// Changes implements [redisroom.Client].
func (c *connection) Changes() uint64 { return c.server.Restarts() }

// Do implements [redisroom.Client].
func (c *connection) Do(ctx context.Context, cmd []string) (any, error) {
	cmd = slices.Clone(cmd) // the driver may change it while this is on its way
	var g got[any]
	err := c.timed(ctx, func(context.Context) error {
		reply, err := c.server.Do(cmd)
		if err == nil {
			g.set(reply)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return g.get(), nil
}

// timed sends a message, and ends as in a client library, which reads the deadline of a context
// and has a timeout of its own. The Done of a context made here has no deadline.
func (c *connection) timed(caller context.Context, do func(context.Context) error) error {
	left := redisroom.DefaultTimeout
	if deadline, ok := caller.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	ctx, cancel := context.WithCancel(caller)
	defer cancel()
	defer time.AfterFunc(left, cancel).Stop()
	f := c.next()
	if f == noDial && c.isUp(false) {
		f = arrives
	}
	c.isUp(f != noDial)
	if f == refused {
		return c.refusal()
	}
	err := meet(ctx, f, c.weather, c.server, do)
	if errors.Is(err, context.Canceled) && caller.Err() == nil {
		return os.ErrDeadlineExceeded
	}
	return err
}

// refusal returns one of the errors of a server that refuses a command, in turn.
func (c *connection) refusal() error {
	all := []redisroom.ReplyError{
		"OOM command not allowed when used memory > 'maxmemory'.", "LOADING Redis is loading the dataset in memory",
		"READONLY You can't write against a read only replica.", "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN The cluster is down", "TRYAGAIN Multiple keys request during rehashing of slot", "BUSY Redis is busy running a script.",
		"MISCONF Redis is configured to save RDB snapshots", "NOREPLICAS Not enough good replicas to write.", "ERR max number of clients reached",
	}
	c.weather.mu.Lock()
	defer c.weather.mu.Unlock()
	c.turn++
	return all[c.turn%len(all)]
}

// Run implements [redisroom.Client].
func (c *connection) Run(ctx context.Context, cmds [][]string, _ redisroom.Acks, each func(int, redisroom.Answer)) {
	for i, cmd := range cmds {
		reply, err := c.Do(ctx, cmd)
		each(i, redisroom.Answer{Reply: reply, Err: err})
	}
}

// Listen implements [redisroom.Client].
func (c *connection) Listen(ctx context.Context, channels []string, up func(), message func(string)) error {
	return c.server.Listen(ctx, channels, up, message)
}

// Nodes implements [redisroom.Client].
func (c *connection) Nodes(context.Context) ([]string, error) { return []string{"one"}, nil }

// Scan implements [redisroom.Client]. It is a message as any other.
func (c *connection) Scan(ctx context.Context, _ string, _ uint64, match string, _ int) ([]string, uint64, error) {
	var g got[[]string]
	err := c.timed(ctx, func(context.Context) error {
		g.set(c.server.Scan(match))
		return nil
	})
	return g.get(), 0, err
}

// onRedis is two clients of one Redis server: the driver and its scripts.
func onRedis(*testing.T) *world {
	k := newKeyspace()
	w := &world{weather: new(weather), tables: []shelf{k}, dials: true}
	a, b := k.open(w.weather), k.open(new(weather))
	w.drivers = [2]driver.Driver{a, b}
	w.stop = func() { _, _ = a.Close(), b.Close() }
	return w
}

// onRedisQuorum is two clients of three Redis servers, one of them with faults.
func onRedisQuorum(t *testing.T) *world {
	return quorum(t, func() shelf { return newKeyspace() }, func(w *weather, s shelf) driver.Driver { return s.(*keyspace).open(w) })
}
