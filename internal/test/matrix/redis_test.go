package matrix_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redisroom"
	"github.com/leasehold-go/leasehold/internal/test/teststore"
)

// keyspace is a shelf of Redis keys, with the scripts of the driver in the interpreter of
// the microscope.
type keyspace struct{ *teststore.Redis }

func newKeyspace() *keyspace { return &keyspace{teststore.NewRedis(time.Now)} }

func (k *keyspace) join() store { return k.Join() }

// open returns a client of the driver with faults for its commands.
func (k *keyspace) open(w *weather) *redisroom.Store {
	return teststore.Open(k.connect(w), k.connect(w))
}

// connection is a client of a keyspace. The weather applies to its commands.
type connection struct {
	redisroom.Client
	*weather
	server *keyspace

	mu    sync.Mutex
	up    bool   // it is connected
	since uint64 // to the server after so many restarts
}

func (k *keyspace) connect(w *weather) *connection {
	c := &connection{weather: w, server: k}
	c.Client = k.Client(c.timed)
	return c
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
	return quorum(t, func() shelf { return newKeyspace() }, func(w *weather, s shelf) (client, inner driver.Driver) {
		d := s.(*keyspace).open(w)
		return d, d
	})
}
