package rediscluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// town is a cluster in memory.
type town struct {
	mu     sync.Mutex
	owner  string            // of all slots, or of the first half
	second string            // of the second half, if it has an owner of its own
	deaf   map[string]bool   // nodes that do not answer
	down   map[string]bool   // nodes that cannot be reached
	errs   map[string]string // answers of nodes to commands
	single bool
	ran    []string // "node command"
	closed []string
}

// house is the client of one node of it.
type house struct {
	redisroom.Client // the rest is not asked for
	*town
	addr string
	cut  chan struct{}
	once sync.Once
}

var errCut = errors.New("the connection was cut")

func (h *house) answer(ctx context.Context, words ...string) (any, error) {
	h.mu.Lock()
	h.ran = append(h.ran, h.addr+" "+words[0])
	deaf, down, reply := h.deaf[h.addr], h.down[h.addr], h.errs[h.addr]
	h.mu.Unlock()
	switch {
	case down:
		return nil, fmt.Errorf("refused: %w", driver.ErrUnavailable)
	case deaf:
		select {
		case <-time.After(timeout):
			return nil, context.DeadlineExceeded
		case <-h.cut:
			return nil, errCut
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case reply != "" && words[0] == "EVALSHA":
		return nil, redisroom.ReplyError(reply)
	}
	return h.addr, nil
}

func (h *house) Do(ctx context.Context, words []string) (any, error) { return h.answer(ctx, words...) }

func (h *house) Run(ctx context.Context, cmds [][]string, _ redisroom.Acks, each func(int, redisroom.Answer)) {
	for i, cmd := range cmds {
		reply, err := h.answer(ctx, cmd...)
		each(i, redisroom.Answer{Reply: reply, Err: err})
	}
}

func (h *house) Ask(ctx context.Context, _ string, words ...string) (any, error) {
	if _, err := h.answer(ctx, words...); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.single {
		return nil, redisroom.ReplyError("ERR This instance has cluster support disabled")
	}
	first, _, _ := strings.Cut(h.owner, ":")
	second, _, _ := strings.Cut(cmp.Or(h.second, h.owner), ":")
	return []any{entry(0, redisroom.Slots/2-1, []any{first, int64(1), "id"}), entry(redisroom.Slots/2, redisroom.Slots-1, []any{second, int64(1), "id"})}, nil
}

func (h *house) Listen(ctx context.Context, _ []string, up func(), _ func(string)) error {
	up()
	<-ctx.Done()
	return fmt.Errorf("at %s: %w", h.addr, context.Cause(ctx))
}

func (h *house) Changes() uint64 { return 0 }
func (h *house) Cut()            { h.once.Do(func() { close(h.cut) }) }

func (h *house) Close() error {
	h.Cut()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = append(h.closed, h.addr)
	return nil
}

// change is how a test changes the town.
func (o *town) change(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

// commands returns the number of commands that a node got, without questions about slots.
func (o *town) commands(addr string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, what := range o.ran {
		if what == addr+" EVALSHA" {
			n++
		}
	}
	return n
}

const timeout = 1600 * time.Millisecond

// inTown plays a test with a client in a town of which a owns all slots.
func inTown(t *testing.T, seeds []string, test func(t *testing.T, o *town, c *Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &town{owner: "a:1", deaf: make(map[string]bool), down: make(map[string]bool), errs: make(map[string]string)}
		c := New(Config{Seeds: seeds, Timeout: timeout, Topology: new(Topology), MayBeOne: len(seeds) == 1, Open: func(addr string) redisroom.Client {
			return &house{town: o, addr: addr, cut: make(chan struct{})}
		}})
		test(t, o, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // goroutines that are left are found
	})
}

var get = []string{"EVALSHA", "sha", "1", "k"}

// do runs a command and returns the node that served it.
func do(t *testing.T, c *Client) string {
	t.Helper()
	reply, err := c.Do(t.Context(), get)
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := reply.(string)
	return addr
}

func TestClient_AsksOthersWhileSomeDoNotAnswer(t *testing.T) {
	inTown(t, []string{"s1:1", "s2:1", "s3:1", "s4:1", "s5:1", "a:1"}, func(t *testing.T, o *town, c *Client) {
		for i := 1; i <= 5; i++ {
			o.change(func() { o.deaf[fmt.Sprintf("s%d:1", i)] = true })
		}
		start := time.Now()
		if addr := do(t, c); addr != "a:1" {
			t.Error(addr)
		}
		if took := time.Since(start); took > timeout/4 {
			t.Errorf("the first command took %v", took)
		}
	})
}

func TestClient_HR_H3_WhatWasNotSentGoesToTheSuccessor(t *testing.T) {
	inTown(t, []string{"a:1", "b:1"}, func(t *testing.T, o *town, c *Client) {
		do(t, c)
		o.change(func() { o.down["a:1"], o.owner = true, "b:1" })
		if addr := do(t, c); addr != "b:1" {
			t.Error(addr)
		}
		var served []any
		c.Run(t.Context(), [][]string{get, get}, redisroom.Acks{}, func(_ int, a redisroom.Answer) { served = append(served, a.Reply) })
		if !slices.Equal(served, []any{"b:1", "b:1"}) {
			t.Error(served)
		}
		o.change(func() { o.down["b:1"] = true }) // and it has no successor
		start := time.Now()
		if _, err := c.Do(t.Context(), get); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
		if took := time.Since(start); took > timeout/4 {
			t.Errorf("the error came after %v", took)
		}
	})
}

func TestClient_L11_HungNodeDelaysOnlyItsOwnCommands(t *testing.T) {
	inTown(t, []string{"a:1", "b:1"}, func(t *testing.T, o *town, c *Client) {
		o.change(func() { o.second, o.deaf["a:1"] = "b:1", true })
		other := []string{"EVALSHA", "sha", "1", "a"} // of the second half
		start := time.Now()
		var answered []int
		c.Run(t.Context(), [][]string{get, other, get, other}, redisroom.Acks{}, func(i int, a redisroom.Answer) {
			answered = append(answered, i)
			if hung := i%2 == 0; hung != (a.Err != nil) || !hung && time.Since(start) > timeout/4 {
				t.Errorf("command %d: %v, %v after %v", i, a.Reply, a.Err, time.Since(start))
			}
		})
		if len(answered) != 4 || answered[0]%2 == 0 || answered[1]%2 == 0 {
			t.Errorf("answered in the order %d", answered)
		}
	})
}

func TestClient_WhatMayHaveBeenSentIsNotRepeated(t *testing.T) {
	inTown(t, []string{"a:1", "b:1"}, func(t *testing.T, o *town, c *Client) {
		do(t, c)
		o.change(func() { o.deaf["a:1"] = true })
		if _, err := c.Do(t.Context(), get); err == nil || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%v, want an error that leaves the outcome unknown", err)
		}
		if n := o.commands("a:1") + o.commands("b:1"); n != 2 {
			t.Errorf("%d commands, want 2", n)
		}
	})
}

func TestClient_HR_H2_NodeThatWasReplacedIsNotWaitedFor(t *testing.T) {
	inTown(t, []string{"a:1", "b:1"}, func(t *testing.T, o *town, c *Client) {
		do(t, c)
		o.change(func() { o.deaf["a:1"], o.owner = true, "b:1" })
		start := time.Now()
		_, err := c.Do(t.Context(), get)
		if took := time.Since(start); err == nil || took > timeout/4 {
			t.Errorf("%v after %v, want an error within a quarter of %v", err, took, timeout)
		}
		if errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%v: it may have been served", err)
		}
		if addr := do(t, c); addr != "b:1" {
			t.Error(addr)
		}
	})
}

func TestClient_RequestIsBoundedWithAllThatItTakes(t *testing.T) {
	for name, ask := range map[string]func(ctx context.Context, c *Client) error{
		"one": func(ctx context.Context, c *Client) error { _, err := c.Do(ctx, get); return err },
		"many": func(ctx context.Context, c *Client) (err error) {
			c.Run(ctx, [][]string{get}, redisroom.Acks{}, func(_ int, a redisroom.Answer) { err = a.Err })
			return err
		},
	} {
		inTown(t, []string{"a:1", "b:1"}, func(t *testing.T, o *town, c *Client) {
			o.change(func() { o.deaf["a:1"] = true })
			c.config.Look = func(context.Context) ([]Range, error) { // late, and to no good
				time.Sleep(timeout - timeout/8)
				return []Range{{0, redisroom.Slots - 1, "a:1", nil}}, nil
			}
			start := time.Now()
			if err := ask(t.Context(), c); err == nil || time.Since(start) > timeout+timeout/hedgeAfter {
				t.Errorf("%s: %v after %v, want an error within %v", name, err, time.Since(start), timeout)
			}
		})
	}
}

func TestClient_FollowsRedirections(t *testing.T) {
	inTown(t, []string{"a:1", "b:1"}, func(t *testing.T, o *town, c *Client) {
		do(t, c)
		o.change(func() { o.errs["a:1"] = "MOVED 7 :2" }) // the host is that of a
		if addr := do(t, c); addr != "a:2" {
			t.Error(addr)
		}
	})
	inTown(t, []string{"a:1", "b:1"}, func(t *testing.T, o *town, c *Client) {
		o.change(func() { o.errs["a:1"] = "ASK 7 b:1" })
		if addr := do(t, c); addr != "b:1" {
			t.Error(addr)
		}
		o.change(func() {
			if !slices.Contains(o.ran, "b:1 ASKING") {
				t.Errorf("%q", o.ran)
			}
		})
		o.change(func() { delete(o.errs, "a:1") })
		if addr := do(t, c); addr != "a:1" { // it was for once
			t.Error(addr)
		}
	})
	inTown(t, []string{"a:1", "b:1"}, func(t *testing.T, o *town, c *Client) {
		o.change(func() { o.errs["a:1"], o.errs["b:1"] = "MOVED 7 b:1", "MOVED 7 a:1" })
		if _, err := c.Do(t.Context(), get); err == nil {
			t.Error("sent to and fro, and no error")
		}
		if n := o.commands("a:1") + o.commands("b:1"); n > 1+maxHops {
			t.Errorf("%d commands", n)
		}
	})
}

func TestClient_OneSeedMayBeAServerWithoutACluster(t *testing.T) {
	inTown(t, []string{"a:1"}, func(t *testing.T, o *town, c *Client) {
		o.change(func() { o.single = true })
		if !c.Cluster() {
			t.Error("it is sure before it asks a node")
		}
		if addr := do(t, c); addr != "a:1" || c.Cluster() {
			t.Error(addr, c.Cluster())
		}
		time.Sleep(time.Hour)
		o.change(func() { o.ran = nil })
		do(t, c)
		o.change(func() {
			if len(o.ran) != 1 {
				t.Errorf("%q", o.ran)
			}
		})
	})
	inTown(t, []string{"a:1", "b:1"}, func(t *testing.T, o *town, c *Client) {
		o.change(func() { o.single = true })
		var reply redisroom.ReplyError
		if _, err := c.Do(t.Context(), get); !errors.As(err, &reply) {
			t.Errorf("%v, want the servers' error", err)
		}
	})
}

// A node that has left the cluster answers pings, and gets no hints.
func TestClient_HR_H4_SubscriptionLeavesANodeThatHasLeftTheCluster(t *testing.T) {
	inTown(t, []string{"a:1", "b:1"}, func(t *testing.T, o *town, c *Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		listens := func() <-chan error {
			up, ended := make(chan struct{}), make(chan error, 1)
			go func() { ended <- c.Listen(ctx, []string{"channel"}, func() { close(up) }, nil) }()
			<-up
			return ended
		}
		ended := listens()
		o.change(func() { o.owner = "b:1" })
		start := time.Now()
		if err := <-ended; !errors.Is(err, errLeft) || !strings.Contains(err.Error(), "a:1") || time.Since(start) > maxAge+3*leftInterval {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		ended = listens()
		time.Sleep(30 * time.Minute)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "b:1") {
			t.Errorf("%v, want that it listened at the other node until now", err)
		}
	})
}

func TestClient_ClosesTheClientsOfNodesThatHaveLeft(t *testing.T) {
	inTown(t, []string{"s:1", "t:1"}, func(t *testing.T, o *town, c *Client) {
		do(t, c)
		o.change(func() { o.owner = "b:1" })
		time.Sleep(maxAge + time.Second)
		if addr := do(t, c); addr != "b:1" {
			t.Error(addr)
		}
		time.Sleep(10 * timeout)
		o.change(func() {
			if !slices.Equal(o.closed, []string{"a:1"}) {
				t.Errorf("closed: %q", o.closed)
			}
		})
	})
}

func TestClient_IsClosedForEverybody(t *testing.T) {
	inTown(t, []string{"a:1", "b:1"}, func(t *testing.T, o *town, c *Client) {
		o.change(func() { o.deaf["a:1"], o.deaf["b:1"] = true, true })
		failed := make(chan error, 1)
		go func() {
			_, err := c.Do(t.Context(), get)
			failed <- err
		}()
		synctest.Wait()
		start := time.Now()
		_ = c.Close()
		if err := <-failed; err == nil || time.Since(start) > timeout {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if _, err := c.Do(t.Context(), get); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	})
}
