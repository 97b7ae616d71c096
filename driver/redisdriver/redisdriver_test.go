package redisdriver_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// newDriver returns a driver on a server that the test starts.
func newDriver(t testing.TB, opts ...redisdriver.Option) (*redisdriver.Driver, *redistest.Server) {
	t.Helper()
	s := redistest.Start(t)
	return driverOn(t, s, opts...), s
}

func driverOn(t testing.TB, s *redistest.Server, opts ...redisdriver.Option) *redisdriver.Driver {
	t.Helper()
	d, err := redisdriver.New(s.Client(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func request(key, id string) driver.Request {
	return driver.Request{Key: key, ID: id, Owner: "tester", TTL: 10 * time.Second, ConfirmWindow: time.Second, Since: time.Now()}
}

func acquire(t testing.TB, d driver.Driver, req driver.Request) driver.Reply {
	t.Helper()
	reply, err := d.Acquire(context.Background(), req)
	if err != nil {
		t.Fatalf("acquire %s by %s: %v", req.Key, req.ID, err)
	}
	return reply
}

func release(t testing.TB, d driver.Driver, ref driver.Ref) driver.Reply {
	t.Helper()
	reply, err := d.Release(context.Background(), ref)
	if err != nil {
		t.Fatalf("release %s of %s: %v", ref.Key, ref.ID, err)
	}
	return reply
}

func renew(t testing.TB, d driver.Driver, ref driver.Ref) driver.Reply {
	t.Helper()
	var reply driver.Reply
	d.Renew(context.Background(), []driver.Ref{ref}, func(_ int, r driver.Reply, err error) {
		if err != nil {
			t.Fatalf("renew %s of %s: %v", ref.Key, ref.ID, err)
		}
		reply = r
	})
	return reply
}

func TestDriver_HandsTheRoomToTheWaiter(t *testing.T) {
	d, s := newDriver(t)
	hints := make(chan driver.Hint, 10)
	sub, err := d.Watch(func(h driver.Hint) { hints <- h })
	if err != nil {
		t.Fatal(err)
	}
	if h := <-hints; h.Kind != driver.HintResync {
		t.Fatalf("first hint %+v, want a resync", h)
	}

	a := acquire(t, d, request("k", "a"))
	if a.State != driver.Granted || a.Token == 0 || a.Holds != 1 {
		t.Fatalf("a: %+v, want a grant with a token", a)
	}
	req := request("k", "b")
	req.TicketTTL, req.HintAddress = 10*time.Second, sub.Address()
	b := acquire(t, d, req)
	if b.State != driver.Queued || b.Position != 1 || len(b.Holders) != 1 || b.Holders[0].ID != "a" || b.Holders[0].Owner != "tester" {
		t.Fatalf("b: %+v, want the first place behind a", b)
	}
	if r := release(t, d, driver.Ref{Key: "k", ID: "a"}); r.State != driver.Released {
		t.Fatalf("release of a: %+v", r)
	}
	h := <-hints
	if h.Kind != driver.HintGranted || h.ID != "b" || h.Token <= a.Token || h.ConfirmWindow != time.Second {
		t.Fatalf("hint %+v, want the grant of b with a greater token", h)
	}
	if r := renew(t, d, driver.Ref{Key: "k", ID: "b", TTL: 10 * time.Second}); r.State != driver.Granted || r.Token != h.Token {
		t.Fatalf("confirmation of b: %+v, want granted with token %d", r, h.Token)
	}
	if r := release(t, d, driver.Ref{Key: "k", ID: "b"}); r.State != driver.Released {
		t.Fatalf("release of b: %+v", r)
	}
	if keys := s.Keys(t); len(keys) != 1 {
		t.Fatalf("keys left: %q, want the token alone", keys)
	}
}
