package postgresdriver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/live"
)

// full starts a server, and returns what takes all connections that it has left.
func full(t *testing.T) (*postgrestest.Server, func()) {
	t.Helper()
	s := postgrestest.Start(t, "max_connections=20", "superuser_reserved_connections=0")
	exec(t, admin(t, s.URL()), SQL())
	return s, func() {
		t.Helper()
		for {
			conn, err := pgx.Connect(t.Context(), s.URL())
			if err != nil {
				if !strings.Contains(err.Error(), "53300") {
					t.Fatal(err)
				}
				return
			}
			t.Cleanup(func() { _ = conn.Close(context.Background()) })
		}
	}
}

// P3: a store that is well loses no lease. The grant has left a connection.
func TestRenew_AServerThatTakesNoMoreConnectionsLosesNoLease(t *testing.T) {
	s, fill := full(t)
	d := openURL(t, s.URL())
	if _, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil {
		t.Fatal(err)
	}
	fill()
	for range 3 {
		d.Renew(t.Context(), []driver.Ref{{Key: "k", ID: "a", TTL: time.Minute}}, func(_ int, reply driver.Reply, err error) {
			if err != nil || reply.State != driver.Granted {
				t.Errorf("%+v, %v", reply, err)
			}
		})
	}
}

func TestAcquire_AServerThatTakesNoMoreConnectionsServesAllByThoseThatThereAre(t *testing.T) {
	s, fill := full(t)
	d := openURL(t, s.URL())
	if _, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil {
		t.Fatal(err)
	}
	fill()
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			if reply, err := d.Acquire(t.Context(), mutex(fmt.Sprint("k", i), "a")); err != nil || reply.State != driver.Granted {
				t.Errorf("%d: %+v, %v", i, reply, err)
			}
		})
	}
	all.Wait()
}

// listening serves connections by f, and counts them.
func listening(t *testing.T, f func(net.Conn)) (addr string, taken *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken = new(atomic.Int64)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			taken.Add(1)
			all.Go(func() {
				defer conn.Close()
				f(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return l.Addr().String(), taken
}

// refusal returns the message of a server that lets nobody in.
func refusal(code string) []byte {
	text := "SFATAL\x00VFATAL\x00C" + code + "\x00Mrefused\x00\x00"
	return append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(text)+4)), text...) //nolint:gosec // it is short
}

// A server at its limit makes a process for each that it refuses.
func TestAcquire_AServerThatLetsNobodyInIsTriedLessAndLessOften(t *testing.T) {
	live.Test(t)
	t.Parallel()
	addr, taken := listening(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1<<10))
		_, _ = conn.Write(refusal("53300"))
	})
	d := openURL(t, "postgres://nobody@"+addr+"/none?sslmode=disable")
	const seconds = 3
	ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := d.Acquire(ctx, mutex(fmt.Sprint("k", i), "a"))
				if ctx.Err() == nil && (!errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "53300")) {
					t.Errorf("%v", err)
				}
			}
		})
	}
	all.Wait()
	// At once as many as there may be connections, and then by pauses of at least 25 ms, 50, 100, 200, 400, 500, 500…
	if n := taken.Load(); n < 4 || n > mainConns+5+2*seconds {
		t.Errorf("%d attempts in %d s", n, seconds)
	}
}

// A router that forgets connections drops what is sent over them.
func TestAcquire_ConnectionsThatLeadNowhereCostOneTimeout(t *testing.T) {
	live.Test(t)
	t.Parallel()
	proxy := postgrestest.Shared(t).Proxy(t)
	d := warm(t, openURL(t, proxy.URL()+"&create=true&timeout=3s"))
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() { _, _ = d.Acquire(t.Context(), mutex(fmt.Sprint("k", i), "a")) })
	}
	all.Wait()
	if n := d.table.main.conns.Stat().IdleConns(); n < 3 {
		t.Fatalf("%d connections", n)
	}
	proxy.Strand()
	var err error
	for range 2 {
		_, err = d.Acquire(t.Context(), mutex("another", "a"))
	}
	if err != nil {
		t.Error(err)
	}
	proxy.CutAll()
}

// The name of a primary leads to a replica until somebody changes it.
func TestAcquire_AConnectionToAReplicaIsNotKept(t *testing.T) {
	primary := postgrestest.Start(t, "synchronous_commit=on")
	exec(t, admin(t, primary.URL()), SQL())
	host := func(s *postgrestest.Server) string {
		u, err := url.Parse(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		return u.Host
	}
	var leads atomic.Pointer[string]
	lead := func(to string) { leads.Store(&to) }
	lead(host(primary.Standby(t)))
	addr, taken := listening(t, func(client net.Conn) {
		server, err := net.Dial("tcp", *leads.Load())
		if err != nil {
			return
		}
		var back sync.WaitGroup
		back.Go(func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
		})
		_, _ = io.Copy(server, client)
		_ = server.Close()
		back.Wait()
	})
	d := openURL(t, strings.Replace(primary.URL(), host(primary), addr, 1))
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if _, err := d.Acquire(t.Context(), mutex("k", fmt.Sprint(i))); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "read-only replica") {
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	if n := taken.Load(); n > 20 {
		t.Errorf("%d connections for 16 calls", n)
	}
	lead(host(primary))
	var err error
	for range 2 {
		_, err = d.Acquire(t.Context(), mutex("k", "a"))
	}
	if err != nil {
		t.Error(err)
	}
}

// Behind those who wait for locks a release would come too late, again and again: a lock
// would stay taken for its TTL because others are wanted.
func TestRelease_ComesBeforeThoseWhoWaitForConnections(t *testing.T) {
	const crowd = 200
	server := postgrestest.Shared(t)
	d := warm(t, openURL(t, server.URL()+"&create=true&timeout=60s"))
	boss := admin(t, server.URL())
	if _, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil {
		t.Fatal(err)
	}
	exec(t, boss, `BEGIN`)
	exec(t, boss, `LOCK TABLE leasehold`)
	var all sync.WaitGroup
	var served atomic.Int64
	for i := range crowd {
		all.Go(func() {
			if _, err := d.Acquire(t.Context(), mutex(fmt.Sprint("other", i), "a")); err != nil {
				t.Error(err)
			}
			served.Add(1)
		})
	}
	p := d.table.main
	waits := func(inLine, hurried int) {
		t.Helper()
		eventually(t, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.line.Len() >= inLine && p.hurried.Len() >= hurried
		})
	}
	waits(crowd-mainConns, 0)
	all.Go(func() {
		reply, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"})
		if n := served.Load(); err != nil || reply.State != driver.Released || n > crowd/2 {
			t.Errorf("after %d others: %+v, %v", n, reply, err)
		}
	})
	waits(crowd-mainConns, 1)
	exec(t, boss, `COMMIT`)
	all.Wait()
}

// The server gives up first, and says so: with what is left of the time after a wait for a
// connection it could not, the outcome would be unknown, and the connection lost.
func TestOnce_WhoeverHasWaitedForAConnectionHasTheFullTime(t *testing.T) {
	live.Test(t)
	t.Parallel()
	const timeout = 8 * time.Second
	d := warm(t, openURL(t, postgrestest.Shared(t).URL()+"&create=true&timeout="+timeout.String()))
	p := d.table.main
	var conns []*pgxpool.Conn
	for range mainConns {
		conn, err := p.take(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	start := time.Now()
	ends := make(chan time.Time, 1)
	go func() {
		err := d.table.once(t.Context(), func(ctx context.Context, _ *pgxpool.Conn) error {
			end, _ := ctx.Deadline()
			ends <- end
			return nil
		})
		if err != nil {
			t.Error(err)
			close(ends)
		}
	}()
	eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.line.Len() == 1 && time.Since(start) > timeout/4+100*time.Millisecond
	})
	given := time.Now()
	for _, conn := range conns {
		p.give(conn, nil)
	}
	if end := <-ends; end.Before(given.Add(timeout)) {
		t.Errorf("it has %v", end.Sub(given))
	}
}

// dialled is a store whose connections are dialled by a function.
func dialled(t *testing.T, url string, dial pgconn.DialFunc, opts ...Option) *Driver {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DialFunc = dial
	return configured(t, cfg, opts...)
}

func configured(t *testing.T, cfg *pgxpool.Config, opts ...Option) *Driver {
	t.Helper()
	application, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(application.Close)
	d, err := New(application, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// That others are served by the connections that there are says nothing of whether there
// is room for more.
func TestAcquire_AFullServerThatServesIsNotAskedForMoreByEachWhoIsServed(t *testing.T) {
	live.Test(t)
	t.Parallel()
	s, fill := full(t)
	var attempts atomic.Int64
	d := dialled(t, s.URL(), func(ctx context.Context, network, addr string) (net.Conn, error) {
		attempts.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	})
	if _, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil {
		t.Fatal(err)
	}
	fill()
	attempts.Store(0)
	const seconds = 3
	ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := d.Acquire(ctx, mutex(fmt.Sprint("k", i), "a")); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := attempts.Load(); n > mainConns+5+2*seconds {
		t.Errorf("%d attempts in %d s", n, seconds)
	}
}

// P3: the time of a call that asked for another connection says nothing of those that
// there are.
func TestRenew_AnAttemptToConnectThatHangsCostsNoConnection(t *testing.T) {
	live.Test(t)
	t.Parallel()
	var hang atomic.Bool
	hangs := make(chan struct{}, 100)
	d := dialled(t, postgrestest.Shared(t).URL(), func(ctx context.Context, network, addr string) (net.Conn, error) {
		if hang.Load() {
			hangs <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}, WithCreate(), WithTimeout(2*time.Second))
	warm(t, d)
	renew := func(patience time.Duration) (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		d.Renew(ctx, []driver.Ref{{Key: "k", ID: "a", TTL: time.Minute}}, func(_ int, _ driver.Reply, e error) { err = e })
		return err
	}
	if _, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil {
		t.Fatal(err)
	}
	if err := renew(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	conn, err := d.table.renew.take(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	hang.Store(true)
	var other sync.WaitGroup
	other.Go(func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // before connecting has failed
		defer cancel()
		_, _ = d.table.renew.take(ctx, false)
	})
	<-hangs
	was := conn.Conn()
	d.table.renew.give(conn, nil)
	other.Wait()
	if was.IsClosed() {
		t.Error("the connection that was there is closed")
	}
	if err := renew(30 * time.Second); err != nil {
		t.Errorf("by the connection that was there: %v", err)
	}
}

// pgxpool keeps a connection that does not answer for a while after the call that asked
// for it has given up. No other call spins meanwhile.
func TestAcquire_NobodySpinsForAConnectionThatIsStillLookedAt(t *testing.T) {
	live.Test(t)
	t.Parallel()
	s, fill := full(t)
	proxy := s.Proxy(t)
	d := warm(t, openURL(t, proxy.URL()+"&timeout=10s"))
	time.Sleep(1100 * time.Millisecond) // after a second pgxpool looks whether a connection is alive
	fill()
	proxy.Strand()
	defer proxy.CutAll()
	conns := d.table.main.conns
	for i := range conns.Stat().TotalConns() {
		_ = impatient(d, mutex(fmt.Sprint("k", i), "a"), 50*time.Millisecond)
	}
	before := conns.Stat().NewConnsCount()
	if err := impatient(d, mutex("k", "b"), 2*time.Second); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if turns := conns.Stat().NewConnsCount() - before; turns > 100 {
		t.Errorf("%d turns in 2 s", turns)
	}
}

// Connections are only looked through when one was silent: that is nothing for the hook of an
// application to prepare.
func TestAcquire_AHookThatAsksTheServerCostsNoConnection(t *testing.T) {
	live.Test(t)
	t.Parallel()
	proxy := postgrestest.Shared(t).Proxy(t)
	proxy.Slow(1500 * time.Millisecond)
	cfg, err := pgxpool.ParseConfig(proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
	cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) { return conn.Ping(ctx) == nil, nil }
	d := configured(t, cfg, WithCreate(), WithTimeout(600*time.Millisecond))
	eventually(t, func() bool {
		_, err := d.Acquire(t.Context(), mutex("k", "a"))
		return err == nil
	})
	if made := d.table.main.conns.Stat().NewConnsCount(); made > mainConns {
		t.Errorf("%d connections had to be made", made)
	}
}
