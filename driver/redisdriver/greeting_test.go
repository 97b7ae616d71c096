package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// dials counts the connections that a client makes.
type dials struct{ made, open atomic.Int64 }

func (d *dials) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.made.Add(1)
	d.open.Add(1)
	return &countedConn{Conn: nc, dials: d}, nil
}

type countedConn struct {
	net.Conn
	dials *dials
	once  sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.dials.open.Add(-1) })
	return c.Conn.Close()
}

// eventually waits until ok returns true, for changes without an event.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20s: %s", what)
		}
	}
}

// crowd asks for many locks at once and returns the errors.
func crowd(d driver.Driver, n int) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, errs[i] = d.Acquire(context.Background(), request(fmt.Sprint("k", i), "a")) })
	}
	all.Wait()
	return errs
}

// restricted are the ways in which a server refuses a connection after accepting it.
func restricted(t *testing.T) map[string]redis.Options {
	secret := redistest.Start(t, "--requirepass", "secret")
	full := redistest.Start(t, "--maxclients", "10")
	nc := make([]net.Conn, 12)
	for i := range nc {
		var err error
		if nc[i], err = net.Dial("tcp", full.Addr()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc[i].Close() })
	}
	return map[string]redis.Options{
		"wrong password": {Addr: secret.Addr(), Password: "wrong"},
		"no password":    {Addr: secret.Addr(), DB: 1},
		"no such user":   {Addr: secret.Addr(), Username: "nobody", Password: "secret"},
		"maxclients":     {Addr: full.Addr()},
	}
}

func TestDriver_HR_G1_RefusedConnectionsAreClosedAndSayThatNothingWasSent(t *testing.T) {
	live.Test(t)
	for name, opt := range restricted(t) {
		t.Run(name, func(t *testing.T) {
			var conns dials
			opt.Dialer = conns.dial
			d := over(t, application(t, &opt))
			start := time.Now()
			for _, err := range crowd(d, 64) {
				if !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("acquire: %v, want ErrUnavailable", err)
				}
			}
			d.Renew(t.Context(), []driver.Ref{{Key: "k", ID: "a", TTL: time.Second}}, func(_ int, _ driver.Reply, err error) {
				if !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("renewal: %v, want ErrUnavailable", err)
				}
			})
			if took := time.Since(start); took > 20*time.Second {
				live.Late(t, "took %v", took)
			}
			eventually(t, "all connections are closed", func() bool { return conns.open.Load() == 0 })
			if conns.made.Load() == 0 {
				t.Error("no connection was made")
			}
		})
	}
}

func TestDriver_HR_G1_SubscriptionThatIsRefusedLeavesNoConnection(t *testing.T) {
	live.Test(t)
	s := redistest.Start(t)
	if err := s.Client().Do(t.Context(), "ACL", "SETUSER", "deaf", "on", ">secret", "~*", "+@all", "-@pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	wrong := redistest.Start(t, "--requirepass", "secret")
	for name, opt := range map[string]redis.Options{
		"no right":       {Addr: s.Addr(), Username: "deaf", Password: "secret"},
		"wrong password": {Addr: wrong.Addr(), Password: "wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			var conns dials
			opt.Dialer = conns.dial
			d := over(t, application(t, &opt))
			sub, err := d.Watch(func(driver.Hint) {})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "tried again and again", func() bool { return conns.made.Load() >= 5 })
			if open := conns.open.Load(); open > 1 {
				t.Errorf("%d connections are open after %d attempts", open, conns.made.Load())
			}
			_ = sub.Close()
		})
	}
}

func TestDriver_HR_H6_NothingSentIsSaidAtOnce(t *testing.T) {
	secure := redistest.StartTLS(t, false)
	sentinel := redistest.StartSentinel(t)
	for name, row := range map[string]struct{ url, says string }{
		"plain text to TLS":    {"redis://" + secure.Addr() + "?timeout=20s", "TLS"},
		"unknown to sentinels": {"redis+sentinel://" + sentinel.Sentinel.Addr() + "?timeout=20s&master=nobody", "no primary of that name"},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, row.url)
			start := time.Now()
			for _, err := range crowd(d, 16) {
				if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), row.says) {
					t.Errorf("acquire: %v, want ErrUnavailable with %q", err, row.says)
				}
			}
			if took := time.Since(start); took > 20*time.Second {
				live.Late(t, "took %v", took)
			}
			if keys, _, err := d.List(t.Context(), "", ""); err == nil {
				t.Errorf("list: %q without an error", keys)
			}
			if report, err := d.Check(t.Context()); err == nil {
				t.Errorf("check: %+v without an error", report)
			}
		})
	}
}

func TestDriver_HR_G1_SentinelsThatRefuseLeaveNoConnection(t *testing.T) {
	live.Test(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the garbage collector would close leaked connections
	s := redistest.StartSentinel(t)
	d := open(t, "redis+sentinel://"+s.Sentinel.Addr()+"?master="+redistest.PrimaryName+"&sentinel-username=nobody&sentinel-password=x")
	before := s.Sentinel.Info(t, "clients")["connected_clients"]
	for range 5 {
		for _, err := range crowd(d, 16) {
			if !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("acquire: %v, want ErrUnavailable", err)
			}
		}
	}
	eventually(t, "all connections are closed", func() bool { return s.Sentinel.Info(t, "clients")["connected_clients"] == before })
}
