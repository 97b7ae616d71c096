package redisroom_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// While a slot moves, the counter may be on the other node. A call that needs no token of it is made
// without it, and leaves the room as it should be, also if the move ends in between.
func TestCounter_StaysOutOfCallsInASlotThatMoves(t *testing.T) {
	live.Test(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	brief := func(req driver.Request) driver.Request { req.TTL = time.Second; return req }
	over := func() { time.Sleep(1100 * time.Millisecond) } // a brief lease ends by the server's clock
	leave := func(d store, key string) error { _, err := d.Release(background, lease(key, "b")); return err }
	// The nodes agree some time after a move, and until then may send a request back and forth.
	acquire := func(t *testing.T, d store, req driver.Request, want driver.State) (reply driver.Reply) {
		t.Helper()
		err := driver.ErrUnavailable
		eventually(t, "available", func() bool { reply, err = d.Acquire(background, req); return !errors.Is(err, driver.ErrUnavailable) })
		if err != nil || reply.State != want {
			t.Fatalf("acquire by %s: %+v, %v; want state %v", req.ID, reply, err, want)
		}
		return reply
	}
	free := func(t *testing.T, d store, _ *ears, key string, owner *redistest.Server) {
		for _, k := range owner.Keys(t) {
			if strings.HasPrefix(k, key) {
				t.Errorf("%q is left", k)
			}
		}
		acquire(t, d, request(key, "next"), driver.Granted)
	}
	for name, row := range map[string]struct {
		first  string // the keys that begin with it have moved before the call; KEY is the lock
		before func(t *testing.T, d store, e *ears, key string)
		call   func(d store, key string) error
		after  func(t *testing.T, d store, e *ears, key string, owner *redistest.Server)
	}{
		"the waiter of an expired holder leaves": {"", func(t *testing.T, d store, e *ears, key string) {
			acquire(t, d, brief(request(key, "a")), driver.Granted)
			acquire(t, d, waiting(key, "b", e.Address()), driver.Queued)
			over()
		}, leave, free},
		"and the next gets the lock": {"", func(t *testing.T, d store, e *ears, key string) {
			acquire(t, d, brief(request(key, "a")), driver.Granted)
			acquire(t, d, waiting(key, "b", e.Address()), driver.Queued)
			acquire(t, d, waiting(key, "c", e.Address()), driver.Queued)
			over()
		}, leave, func(t *testing.T, d store, e *ears, key string, _ *redistest.Server) {
			e.hear(t, driver.HintGranted, "c")
			renew(t, d, lease(key, "c"), driver.Granted)
		}},
		"another library has the lock": {"\x1fc", func(t *testing.T, d store, e *ears, key string) {
			acquire(t, d, brief(request(key, "a")), driver.Granted)
			acquire(t, d, waiting(key, "b", e.Address()), driver.Queued)
			eventually(t, "free", func() bool { return c.Owner(key).Client().SetNX(background, key, "1", time.Minute).Val() })
		}, leave, func(t *testing.T, _ store, _ *ears, key string, owner *redistest.Server) {
			if v := owner.Client().Get(background, key).Val(); v != "1" {
				t.Errorf("its lock became %q", v)
			}
		}},
		"two rooms in one renewal": {"KEY", func(t *testing.T, d store, _ *ears, key string) {
			for _, key := range []string{key + "1", key + "2"} {
				long, short := request(key, "long"), brief(request(key, "short"))
				long.Mode, short.Mode = driver.Shared, driver.Shared
				acquire(t, d, long, driver.Granted)
				acquire(t, d, short, driver.Granted)
				release(t, d, key, "long", driver.Released)
			}
			over()
		}, func(d store, key string) error {
			_, errs := renewAll(d, []driver.Ref{lease(key+"1", "short"), lease(key+"2", "short")})
			return errors.Join(errs...)
		}, func(t *testing.T, d store, _ *ears, key string, _ *redistest.Server) { // the rooms keep their tokens
			acquire(t, d, request(key+"1", "next"), driver.Granted)
			acquire(t, d, request(key+"2", "next"), driver.Granted)
		}},
		"a token above the counter": {"", func(t *testing.T, d store, _ *ears, key string) {
			far := request(key, "b")
			far.MinToken = time.Now().Add(time.Hour).UnixMicro()
			acquire(t, d, far, driver.Granted)
		}, leave, func(t *testing.T, d store, _ *ears, key string, _ *redistest.Server) {
			if r := acquire(t, d, request(key, "next"), driver.Granted); r.Token < time.Now().Add(50*time.Minute).UnixMicro() {
				t.Errorf("token %d after one of an hour ahead", r.Token)
			}
		}},
		"the last reader leaves": {"\x1fc", func(t *testing.T, d store, _ *ears, key string) {
			reader := request(key, "b")
			reader.Mode = driver.Shared
			acquire(t, d, reader, driver.Granted)
		}, leave, func(t *testing.T, d store, _ *ears, key string, _ *redistest.Server) {
			acquire(t, d, request(key, "next"), driver.Granted)
		}},
		"the record has moved": {"KEY\x1f", func(t *testing.T, d store, _ *ears, key string) {
			reader := request(key, "b")
			reader.Mode = driver.Shared
			acquire(t, d, reader, driver.Granted)
		}, leave, free},
	} {
		eachClient(t, func(t *testing.T, open func(string) store) {
			d, key := open(clusterURL(c, "timeout=10s&prefix=")), "{"+strings.ReplaceAll(strings.ToLower(t.Name())+"-"+name, " ", "-")+"}"
			e := listen(t, d)
			row.before(t, d, e, key)
			move := c.Move(key)
			if row.first != "" {
				noErr(t, move.Named(strings.ReplaceAll(row.first, "KEY", key)))
			}
			done := make(chan error, 1)
			go func() { done <- row.call(d, key) }()
			select {
			case err := <-done:
				done <- err
			case <-time.After(200 * time.Millisecond): // it waits for the end of the move
			}
			noErr(t, move.Rest())
			noErr(t, move.End())
			if err := <-done; err != nil {
				t.Errorf("%s: %v", name, err)
			}
			row.after(t, d, e, key, move.To)
		})
	}
}
