package teststore

import (
	"context"
	"crypto/sha1" //nolint:gosec // a server names scripts by it
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redisroom"
	"github.com/leasehold-go/leasehold/internal/test/microscope"
)

// Redis is a keyspace in which the interpreter runs the scripts of the Redis drivers. It is
// safe for concurrent use.
type Redis struct {
	now func() time.Time

	mu          sync.Mutex
	keys        microscope.Keys
	kept        microscope.Keys
	scripts     map[string]string // scripts that were sent, by their digests
	restarts    uint64
	runs        int // of scripts
	subscribers map[*subscriber]bool
}

// subscriber is one connection that listens.
type subscriber struct {
	channels []string
	messages chan string
	cut      chan struct{}
}

// NewRedis returns an empty keyspace with the clock now, on a server that has all scripts
// already.
func NewRedis(now func() time.Time) *Redis {
	return &Redis{now: now, keys: microscope.Keys{}, scripts: maps.Clone(scripts()), subscribers: make(map[*subscriber]bool)}
}

// scripts returns the scripts of the drivers by their digests.
var scripts = sync.OnceValue(func() map[string]string {
	r := &Redis{now: time.Now, keys: microscope.Keys{}, scripts: make(map[string]string), subscribers: make(map[*subscriber]bool)}
	s, ctx := r.Join(), context.Background()
	defer s.Close()
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
	return r.scripts
})

// Join returns another driver of the keyspace. Its commands always arrive.
func (r *Redis) Join() *redisroom.Store {
	c := r.Client(func(ctx context.Context, do func(context.Context) error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return do(ctx)
	})
	return Open(c, c)
}

// Open returns a driver with two connections.
func Open(main, renew redisroom.Client) *redisroom.Store {
	return redisroom.New(main, renew, redisroom.Options{Prefix: "p:", Timeout: redisroom.DefaultTimeout})
}

// Keep stores the present state, to which GoBack returns.
func (r *Redis) Keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = r.keys.Clone()
}

// GoBack restarts the server with the state that Keep stored.
func (r *Redis) GoBack() { r.restart(func() { r.keys = r.kept.Clone() }) }

// Forget restarts the server without any keys.
func (r *Redis) Forget() { r.restart(func() { r.keys = microscope.Keys{} }) }

// Flush removes all keys. Scripts and connections stay.
func (r *Redis) Flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = microscope.Keys{}
}

// restart removes all scripts and cuts all connections.
func (r *Redis) restart(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	r.scripts = make(map[string]string)
	r.restarts++
	r.cut()
}

// cut ends all subscriptions.
func (r *Redis) cut() {
	for s := range r.subscribers {
		close(s.cut)
	}
	clear(r.subscribers)
}

// Runs returns how many scripts ran, or were unknown.
func (r *Redis) Runs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs
}

// Keys returns the keys that have not expired.
func (r *Redis) Keys() microscope.Keys {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live()
}

func (r *Redis) live() microscope.Keys {
	ms := r.now().UnixMilli()
	live := r.keys.Clone()
	maps.DeleteFunc(live, func(_ string, v microscope.Value) bool { return v.At > 0 && v.At < ms })
	return live
}

// One interpreter serves all keyspaces, because it has compiled the scripts.
var (
	interpreter = microscope.New(0)
	interprets  sync.Mutex
)

// do runs a script by EVAL or EVALSHA.
func (r *Redis) do(cmd []string) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs++
	text, ok := cmd[1], true
	if cmd[0] == "EVALSHA" {
		text, ok = r.scripts[cmd[1]]
	} else {
		sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
		r.scripts[hex.EncodeToString(sum[:])] = text
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
	interpreter.Keys, interpreter.Now = r.keys, r.now().UnixMicro()
	reply, err := interpreter.Run(text, cmd[3:3+keys], cmd[3+keys:])
	r.keys = interpreter.Live()
	for _, m := range interpreter.Published {
		for s := range r.subscribers {
			if slices.Contains(s.channels, m.Channel) {
				s.messages <- m.Text
			}
		}
	}
	if err != nil {
		return nil, redisroom.ReplyError(err.Error())
	}
	return readable(reply), nil
}

// readable converts a reply of the interpreter to that of a client library.
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

// client is a client library, reduced to the calls of the scripts.
type client struct {
	redisroom.Client // its other methods are not called
	server           *Redis
	way              func(ctx context.Context, do func(context.Context) error) error
}

// Client returns a connection. way takes each command to the server by do, and waits for the answer. It may
// call do later, or never.
func (r *Redis) Client(way func(ctx context.Context, do func(context.Context) error) error) redisroom.Client {
	return &client{server: r, way: way}
}

func (c *client) Connect(int)   {}
func (c *client) Cluster() bool { return false }
func (c *client) Cut()          {}
func (c *client) Close() error  { return nil }

func (c *client) Changes() uint64 {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.server.restarts
}

func (c *client) Do(ctx context.Context, cmd []string) (any, error) {
	cmd = slices.Clone(cmd) // the driver uses its memory again
	return send(ctx, c, func() (any, error) { return c.server.do(cmd) })
}

func (c *client) Run(ctx context.Context, cmds [][]string, _ redisroom.Acks, each func(int, redisroom.Answer)) {
	for i, cmd := range cmds {
		reply, err := c.Do(ctx, cmd)
		each(i, redisroom.Answer{Reply: reply, Err: err})
	}
}

// errCut is returned by Listen when the server ends the subscription.
var errCut = errors.New("connection lost")

func (c *client) Listen(ctx context.Context, channels []string, up func(), message func(string)) error {
	r := c.server
	s := &subscriber{channels, make(chan string, 1000), make(chan struct{})}
	r.mu.Lock()
	r.subscribers[s] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subscribers, s)
	}()
	up()
	for {
		select {
		case text := <-s.messages:
			message(text)
		case <-s.cut:
			return errCut
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *client) Nodes(context.Context) ([]string, error) { return []string{"one"}, nil }

// Ask answers SCAN.
func (c *client) Ask(ctx context.Context, _ string, words ...string) (any, error) {
	return send(ctx, c, func() (any, error) { return []any{"0", c.server.scan(words[3])}, nil })
}

// send returns the answer of do.
func send[T any](ctx context.Context, c *client, do func() (T, error)) (answer T, err error) {
	var got atomic.Pointer[T]
	err = c.way(ctx, func(context.Context) error {
		v, err := do()
		if err == nil {
			got.Store(&v)
		}
		return err
	})
	if err == nil {
		answer = *got.Load()
	}
	return answer, err
}

// scan returns the names that match a prefix and an asterisk, each of them twice, because a
// real server may return duplicates.
func (r *Redis) scan(match string) (names []any) {
	prefix := strings.TrimSuffix(match, "*")
	for _, name := range slices.Sorted(maps.Keys(r.Keys())) {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name, name)
		}
	}
	return names
}
