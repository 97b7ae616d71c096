package matrix_test

import (
	"context"
	"crypto/sha1" //nolint:gosec // a server names scripts so
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/microscope"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// keyspace is a shelf of Redis keys, with the scripts of the driver in the interpreter of
// the microscope. Its clock is that of the bubble unless it is turned.
type keyspace struct {
	dial

	mu       sync.Mutex
	keys     microscope.Keys
	kept     microscope.Keys
	scripts  map[string]string // that it was sent, by their digests
	restarts uint64
	ears     map[*ear]bool
}

// ear is a subscription.
type ear struct {
	channels []string
	hears    chan string
	cut      chan struct{}
}

func newKeyspace() *keyspace {
	return &keyspace{keys: microscope.Keys{}, scripts: served(), ears: make(map[*ear]bool)}
}

// served are the scripts that a server knows which has served for a while. One that was
// restarted knows none.
func served() map[string]string {
	known.Do(func() {
		k := &keyspace{keys: microscope.Keys{}, scripts: make(map[string]string), ears: make(map[*ear]bool)}
		s, ctx := k.open(new(weather)), context.Background()
		for _, once := range []bool{false, true} {
			_, _ = s.Acquire(ctx, driver.Request{Key: "k", ID: "a", TTL: time.Minute, SingleUseID: once})
			for _, alone := range []bool{false, true} {
				ref := driver.Ref{Key: "k", ID: "a", TTL: time.Minute, Uncontended: alone}
				s.Renew(ctx, []driver.Ref{ref}, func(int, driver.Reply, error) {})
				_, _ = s.Release(ctx, ref)
			}
		}
		_, _ = s.Break(ctx, "k", "a", "")
		_, _ = s.Inspect(ctx, "k")
		_, _, _ = s.Marked(ctx)
		_, _ = s.Acquire(ctx, driver.Request{Key: "k", ID: "b", TTL: time.Minute})
		_, _, _ = s.List(ctx, "", "")
		all = k.scripts
	})
	return maps.Clone(all)
}

var (
	known sync.Once
	all   map[string]string
)

func (k *keyspace) keep() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = k.keys.Clone()
}

func (k *keyspace) goBack() { k.restart(func() { k.keys = k.kept.Clone() }) }
func (k *keyspace) forget() { k.restart(func() { k.keys = microscope.Keys{} }) }

// restart is one of the server: it knows no script, and all connections are lost.
func (k *keyspace) restart(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
	k.scripts = make(map[string]string)
	k.restarts++
	for e := range k.ears {
		close(e.cut)
	}
	clear(k.ears)
}

func (k *keyspace) join() store { return k.open(new(weather)) }

// open is a client of the driver, whose commands suffer.
func (k *keyspace) open(w *weather) *redisroom.Store {
	main, renew := &connection{weather: w, server: k}, &connection{weather: w, server: k}
	return redisroom.New(redisroom.Config{Main: main, Renew: renew, Prefix: "p:", Timeout: redisroom.DefaultTimeout})
}

// One interpreter serves all keyspaces: it has compiled the scripts.
var (
	interpreter = microscope.New(0)
	interprets  sync.Mutex
)

// eval runs a script.
func (k *keyspace) eval(cmd []string) (any, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, ok := cmd[1], true
	if cmd[0] == "EVALSHA" {
		text, ok = k.scripts[cmd[1]]
	} else {
		sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
		k.scripts[hex.EncodeToString(sum[:])] = text
	}
	if !ok {
		return nil, redisroom.ReplyError("NOSCRIPT No matching script.")
	}
	keys, err := strconv.Atoi(cmd[2])
	if err != nil {
		return nil, err
	}
	interprets.Lock()
	defer interprets.Unlock()
	interpreter.Keys, interpreter.Now = k.keys, k.now().UnixMicro()
	reply, err := interpreter.Run(text, cmd[3:3+keys], cmd[3+keys:])
	k.keys = interpreter.Live()
	for _, m := range interpreter.Published {
		for e := range k.ears {
			if slices.Contains(e.channels, m.Channel) {
				e.hears <- m.Text
			}
		}
	}
	if err != nil {
		return nil, redisroom.ReplyError(err.Error())
	}
	return readable(reply), nil
}

// readable makes a client's reply of the interpreter's.
func readable(reply any) any {
	switch reply := reply.(type) {
	case microscope.Error:
		return redisroom.ReplyError(reply)
	case microscope.Status:
		return string(reply)
	case []any:
		for i := range reply {
			reply[i] = readable(reply[i])
		}
	}
	return reply
}

// connection is a client of a keyspace, as the driver needs it.
type connection struct {
	redisroom.Client // what it lacks, nobody calls
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
func (c *connection) Changes() uint64 {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.server.restarts
}

// Do implements [redisroom.Client].
func (c *connection) Do(ctx context.Context, cmd []string) (any, error) {
	cmd = slices.Clone(cmd) // the driver may change it while this is on its way
	var g got[any]
	err := c.timed(ctx, func(context.Context) error {
		reply, err := c.server.eval(cmd)
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

// timed sends a message, and ends as a client library does, which reads the deadline of
// a context and has a timeout of its own: the Done of one by the library tells nothing of
// its deadline.
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

// refusal is one of the answers of a server that does nothing, in turn.
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

var errCut = errors.New("connection lost")

// Listen implements [redisroom.Client].
func (c *connection) Listen(ctx context.Context, channels []string, up func(), message func(string)) error {
	e := &ear{channels, make(chan string, 1000), make(chan struct{})}
	c.server.mu.Lock()
	c.server.ears[e] = true
	c.server.mu.Unlock()
	defer func() {
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		delete(c.server.ears, e)
	}()
	up()
	for {
		select {
		case text := <-e.hears:
			message(text)
		case <-e.cut:
			return errCut
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Nodes implements [redisroom.Client].
func (c *connection) Nodes(context.Context) ([]string, error) { return []string{"one"}, nil }

// Scan implements [redisroom.Client]. It is a message as any other.
func (c *connection) Scan(ctx context.Context, _ string, _ uint64, match string, _ int) ([]string, uint64, error) {
	var g got[[]string]
	err := c.timed(ctx, func(context.Context) error {
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		var keys []string
		for _, name := range slices.Sorted(maps.Keys(c.server.keys)) {
			if strings.HasPrefix(name, strings.TrimSuffix(match, "*")) {
				keys = append(keys, name, name) // as a server may
			}
		}
		g.set(keys)
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

// onRedisQuorum is two clients of three Redis servers, of which one suffers.
func onRedisQuorum(t *testing.T) *world {
	return quorum(t, func() shelf { return newKeyspace() }, func(w *weather, s shelf) driver.Driver { return s.(*keyspace).open(w) })
}
