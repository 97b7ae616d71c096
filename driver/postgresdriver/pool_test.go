package postgresdriver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// full starts a server, and returns a function that uses up its remaining connections.
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

// P3: a healthy store loses no lease. The connection of the grant still exists, and serves all
// calls.
func TestPool_AServerThatTakesNoMoreConnectionsLosesNoLease(t *testing.T) {
	s, fill := full(t)
	d := openURL(t, s.URL())
	acquire(t, d, mutex("k", "a"), driver.Granted)
	fill()
	for range 3 {
		d.table.pool.noteSilence() // a silent connection is better than no connection
		renewed(t.Context(), t, d, "k")
	}
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

// lone returns a store of a role that may have one connection, and a superuser's connection.
func lone(t *testing.T) (*Driver, *pgx.Conn) {
	t.Helper()
	s := postgrestest.Start(t)
	boss := admin(t, s.URL())
	exec(t, boss, SQL())
	exec(t, boss, `CREATE ROLE lone LOGIN CONNECTION LIMIT 1; GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold TO lone; GRANT USAGE ON SEQUENCE leasehold_tokens TO lone`)
	return openURL(t, as("lone", s.URL())), boss
}

// P3: renewals, releases and calls for locks share the only connection, no matter which of
// them made it. The listener does not take it from them.
func TestRenew_OneConnectionIsEnough(t *testing.T) {
	d, boss := lone(t)
	watchSoon(t, d, unheard)
	eventually(t, func() bool { // the listener may have taken the connection, and gives it up
		_, err := d.Acquire(t.Context(), mutex("k", "a"))
		return err == nil
	})
	for range 3 {
		exec(t, boss, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'lone'`)
		eventually(t, func() bool { // the server counts a session that ends for a while
			got, err := renew(t.Context(), d, "k")
			return err == nil && got == driver.Granted
		})
		acquire(t, d, mutex("k", "b"), driver.Busy)
	}
	release(t, d, "k", "a")
}

// A listener that has the last connection of a full server gives it up.
func TestWatch_LeavesTheLastConnectionToCalls(t *testing.T) {
	live.Test(t)
	t.Parallel()
	d, boss := lone(t)
	exec(t, boss, `ALTER ROLE lone CONNECTION LIMIT 2`)
	watch(t, d, unheard)
	acquire(t, d, mutex("k", "a"), driver.Granted)
	exec(t, boss, `ALTER ROLE lone CONNECTION LIMIT 1`)
	exec(t, boss, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'lone' AND query NOT LIKE 'LISTEN%'`)
	eventually(t, func() bool {
		_, err := renew(t.Context(), d, "k")
		return err == nil
	})
}

// A waiting process has one connection for calls and one for the listener: otherwise many such
// processes would use up the server's connections.
func TestAcquire_AWaitingCallTakesOneConnectionAndOneThatListens(t *testing.T) {
	server := postgrestest.Shared(t)
	boss := admin(t, server.URL())
	exec(t, boss, SQL())
	exec(t, boss, `INSERT INTO leasehold VALUES ('over', '', 0)`)
	d := openURL(t, server.URL())
	acquire(t, d, mutex("k", "b"), driver.Granted)
	eventually(t, func() bool { // the first sweep is over
		left := value[int](t, boss, `SELECT count(*) FROM leasehold WHERE key = 'over'`)
		return left == 0 && d.table.pool.conns.Stat().AcquiredConns() == 0
	})
	watch(t, d, unheard)
	before := d.table.pool.conns.Stat().TotalConns()
	for range 3 {
		acquire(t, d, ticket("k", "a"), driver.Queued)
		if _, err := renew(t.Context(), d, "k"); err != nil {
			t.Error(err)
		}
		if _, err := d.Glance(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	}
	if all := sessions(t, boss); before != 1 || len(all) != 2 {
		t.Errorf("%d connections before the wait, and %d sessions with that which listens", before, len(all))
	}
}

// inLine returns how many calls wait in a line of the pool.
func inLine(p *pool, u urgency) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines[u].Len()
}

// A sweep, and the message of a listener to itself, wait for the present connection.
func TestSweep_MakesNoConnection(t *testing.T) {
	server := postgrestest.Shared(t)
	exec(t, admin(t, server.URL()), SQL())
	d := openURL(t, server.URL())
	p := d.table.pool
	conn, err := p.take(t.Context(), ordinary)
	noError(t, err)
	var sweep sync.WaitGroup
	sweep.Go(func() {
		if _, err := d.table.Sweep(t.Context(), 1); err != nil {
			t.Error(err)
		}
	})
	eventually(t, func() bool { return inLine(p, background) == 1 })
	p.give(conn, nil)
	sweep.Wait()
	if n := p.conns.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// During a sweep a call waits for a moment before it makes a connection, and so does a renewal
// that has enough time.
func TestPool_SharesTheConnectionWithASweepForAMoment(t *testing.T) {
	p := &pool{open: map[*pgx.Conn]*connState{new(pgx.Conn): {}}}
	noError(t, p.enter(t.Context(), background, false))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shared = time.Now().Add(time.Hour)
	soon := context.WithValue(t.Context(), leaving{}, time.Now().Add(sharing))
	for name, row := range map[string]struct {
		ctx          context.Context
		u            urgency
		during, past bool
	}{
		"a call":                          {t.Context(), ordinary, false, true},
		"a release":                       {t.Context(), hurried, false, true},
		"another sweep":                   {t.Context(), background, false, false},
		"a renewal":                       {t.Context(), renewing, false, true},
		"a renewal that is given up soon": {soon, renewing, true, true},
	} {
		p.shared = time.Now().Add(time.Hour)
		during := p.mayEnter(row.ctx, row.u, false)
		p.shared = time.Now()
		if past := p.mayEnter(row.ctx, row.u, false); during != row.during || past != row.past {
			t.Errorf("%s goes on: %t, and after the moment %t", name, during, past)
		}
	}
}

// P3: renewals come before all other calls, also if they have waited because there were many
// renewals.
func TestPool_ARenewalThatWaitsForOthersWaitsForNoOtherCall(t *testing.T) {
	p := &pool{open: make(map[*pgx.Conn]*connState)}
	for _, row := range []struct {
		u urgency
		n int
	}{{ordinary, mainConns}, {renewing, renewConns}} {
		for range row.n {
			noError(t, p.enter(t.Context(), row.u, false))
		}
	}
	line := func(u urgency) <-chan error {
		called := make(chan error, 1)
		go func() { called <- p.enter(t.Context(), u, false) }()
		eventually(t, func() bool { return inLine(p, u) == 1 })
		return called
	}
	release := line(hurried)
	renewal := line(renewing)
	p.leave(nil) // one of the renewals
	eventually(t, func() bool { return len(renewal) == 1 })
	if len(release) != 0 {
		t.Error("the release has the place of a renewal")
	}
	for range renewConns + 1 {
		p.leave(nil)
	}
	eventually(t, func() bool { return len(release) == 1 })
}

// many makes as many connections as a store may have. They are idle.
func many(t *testing.T, d *Driver) {
	t.Helper()
	var conns []*pgxpool.Conn
	for range allConns {
		conn, err := d.table.pool.take(t.Context(), renewing)
		noError(t, err)
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		d.table.pool.give(conn, nil)
	}
}

// P3: a renewal that finds all connections doubtful makes a new one, however many there are.
// It does not keep the other connections from other calls for long.
func TestPool_ARenewalMayDoubtAllConnections(t *testing.T) {
	d, _ := newStore(t, "")
	many(t, d)
	p := d.table.pool
	p.noteSilence()
	conn, err := p.takeToRenew(within(t, time.Minute))
	noError(t, err)
	if p.mayBeSilent(conn.Conn()) || p.count() != allConns {
		t.Errorf("doubtful: %t, of %d connections", p.mayBeSilent(conn.Conn()), p.count())
	}
	p.give(conn, nil)
}

// A router that has forgotten a connection drops its packets. P3: a connection that is being closed
// does not count against the limit of connections.
func TestPool_ConnectionsThatLeadNowhereCostOneTimeoutAndNoPlace(t *testing.T) {
	live.Test(t)
	t.Parallel()
	d, proxy := newStoreBehind(t, "&timeout=2s")
	defer proxy.CutAll()
	acquire(t, d, mutex("k", "a"), driver.Granted)
	many(t, d)
	proxy.Strand()
	var all sync.WaitGroup
	for i := range allConns {
		all.Go(func() { _, _ = renew(within(t, 3*time.Second), d, fmt.Sprint("other", i)) })
	}
	all.Wait()
	renewed(within(t, 3*time.Second), t, d, "k")
	many(t, d)
	proxy.Strand()
	var err error
	for range 2 {
		_, err = d.Acquire(t.Context(), mutex("another", "a"))
	}
	noError(t, err)
}

// listening serves connections by f, and counts them.
func listening(t *testing.T, f func(net.Conn)) (addr string, taken *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
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

// refuse answers a connection like a server that refuses it with the code.
func refuse(conn net.Conn, code string) {
	text := "SFATAL\x00VFATAL\x00C" + code + "\x00Mrefused\x00\x00"
	message := append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(text)+4)), text...) //nolint:gosec // it is short
	_, _ = conn.Read(make([]byte, 1<<10))
	_, _ = conn.Write(message)
}

// refusing returns the address of a server that refuses connections with the code.
func refusing(t *testing.T, code string) (addr string, taken *atomic.Int64) {
	t.Helper()
	return listening(t, func(conn net.Conn) { refuse(conn, code) })
}

// A server at its limit starts a process for each connection that it refuses.
func TestAcquire_AServerThatLetsNobodyInIsTriedLessAndLessOften(t *testing.T) {
	live.Test(t)
	t.Parallel()
	addr, taken := refusing(t, "53300")
	d := openURL(t, "postgres://nobody@"+addr+"/none?sslmode=disable")
	hammer(t, d, func(err error) {
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "53300") {
			t.Errorf("%v", err)
		}
	})
	// At once as many attempts as there may be connections, and then one after pauses of at least 25 ms, 50, 100, 200, 400, 500, 500…
	if n := taken.Load(); n < 4 || n > mainConns+5+2*seconds {
		t.Errorf("%d attempts in %d s", n, seconds)
	}
}

// seconds is for how long hammer makes calls.
const seconds = 3

// hammer has many callers ask for locks all the time, and passes on their errors.
func hammer(t *testing.T, d *Driver, answered func(error)) {
	t.Helper()
	ctx := within(t, seconds*time.Second)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := d.Acquire(ctx, mutex(fmt.Sprint("k", i), "a")); ctx.Err() == nil {
					answered(err)
				}
			}
		})
	}
	all.Wait()
}

// After a failover the name of the primary may lead to a replica until it is changed.
func TestAcquire_AConnectionToAReplicaIsNotKept(t *testing.T) {
	primary := postgrestest.Shared(t)
	exec(t, admin(t, primary.URL()), SQL())
	var leads atomic.Pointer[string]
	lead := func(to *postgrestest.Server) {
		host := hostOf(t, to.URL())
		leads.Store(&host)
	}
	lead(primary.Standby(t))
	addr, taken := listening(t, func(client net.Conn) { forward(client, *leads.Load()) })
	d := openURL(t, strings.Replace(primary.URL(), hostOf(t, primary.URL()), addr, 1))
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
	lead(primary)
	var err error
	for range 2 {
		_, err = d.Acquire(t.Context(), mutex("k", "a"))
	}
	noError(t, err)
}

// forward forwards a connection to a server, until one side ends.
func forward(client net.Conn, to string) {
	server, err := net.Dial("tcp", to)
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
}

// If releases queued behind calls for locks, they would be late again and again: a lock would
// stay taken for its TTL because of calls for other locks.
func TestRelease_ComesBeforeThoseWhoWaitForConnections(t *testing.T) {
	const crowd = 200
	d, server := newStore(t, "&timeout=60s")
	boss := admin(t, server.URL())
	acquire(t, d, mutex("k", "a"), driver.Granted)
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
	p := d.table.pool
	eventually(t, func() bool { return inLine(p, ordinary) >= crowd-mainConns })
	all.Go(func() {
		reply, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"})
		if n := served.Load(); err != nil || reply.State != driver.Released || n > crowd/2 {
			t.Errorf("after %d other calls: %+v, %v", n, reply, err)
		}
	})
	eventually(t, func() bool { return inLine(p, hurried) >= 1 })
	exec(t, boss, `COMMIT`)
	all.Wait()
}

// A call that has waited for a connection still has the full timeout. So the server's timeout
// ends the statement first. Otherwise the outcome would be unknown, and the connection lost.
func TestOnce_WhoeverHasWaitedForAConnectionHasTheFullTime(t *testing.T) {
	live.Test(t)
	t.Parallel()
	const timeout = 8 * time.Second
	d, _ := newStore(t, "&timeout="+timeout.String())
	p := d.table.pool
	var conns []*pgxpool.Conn
	for range mainConns {
		conn, err := p.take(t.Context(), ordinary)
		noError(t, err)
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
	eventually(t, func() bool { return inLine(p, ordinary) == 1 && time.Since(start) > timeout/4+100*time.Millisecond })
	given := time.Now()
	for _, conn := range conns {
		p.give(conn, nil)
	}
	if end := <-ends; end.Before(given.Add(timeout)) {
		t.Errorf("it has %v", end.Sub(given))
	}
}

// dialled returns a store that makes its connections by dial.
func dialled(t *testing.T, url string, dial pgconn.DialFunc, opts ...Option) *Driver {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	noError(t, err)
	cfg.ConnConfig.DialFunc = dial
	return configured(t, cfg, opts...)
}

func configured(t *testing.T, cfg *pgxpool.Config, opts ...Option) *Driver {
	t.Helper()
	application, err := pgxpool.NewWithConfig(t.Context(), cfg)
	noError(t, err)
	t.Cleanup(application.Close)
	d, err := New(application, opts...)
	noError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// Calls that are served by the present connections do not show that the server accepts more
// connections.
func TestAcquire_AFullServerThatServesIsNotAskedForMoreByEachWhoIsServed(t *testing.T) {
	live.Test(t)
	t.Parallel()
	s, fill := full(t)
	var attempts atomic.Int64
	d := dialled(t, s.URL(), func(ctx context.Context, network, addr string) (net.Conn, error) {
		attempts.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	})
	acquire(t, d, mutex("k", "a"), driver.Granted)
	fill()
	attempts.Store(0)
	hammer(t, d, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	if n := attempts.Load(); n > mainConns+5+2*seconds {
		t.Errorf("%d attempts in %d s", n, seconds)
	}
}

// P3: a slow attempt to connect is no evidence against the present connections.
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
	acquire(t, d, mutex("k", "a"), driver.Granted)
	renewed(within(t, 30*time.Second), t, d, "k")
	p := d.table.pool
	var conn *pgxpool.Conn
	var others []*pgxpool.Conn
	eventually(t, func() bool { // a sweep may have another connection
		if stat := p.conns.Stat(); stat.IdleConns() > 0 {
			var err error
			if conn, err = p.take(t.Context(), ordinary); err != nil {
				t.Fatal(err)
			}
			others = append(others, conn)
		}
		stat := p.conns.Stat()
		return stat.IdleConns() == 0 && int(stat.TotalConns()) == len(others)
	})
	hang.Store(true)
	var other sync.WaitGroup
	other.Go(func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // before connecting has failed
		defer cancel()
		_, _ = p.take(ctx, renewing)
	})
	<-hangs
	was := conn.Conn()
	for _, conn := range others {
		p.give(conn, nil)
	}
	other.Wait()
	if was.IsClosed() {
		t.Error("the connection that was there is closed")
	}
	renewed(within(t, 30*time.Second), t, d, "k") // by the connection that was there
	p.noteSilence()
	renewed(within(t, 30*time.Second), t, d, "k") // by that connection, after half of the time
}

// When a call gives up on a connection that does not answer, pgxpool keeps the connection for
// a while. Other calls do not spin during that time.
func TestAcquire_NobodySpinsForAConnectionThatIsStillLookedAt(t *testing.T) {
	live.Test(t)
	t.Parallel()
	s, fill := full(t)
	proxy := s.Proxy(t)
	d := warm(t, openURL(t, proxy.URL()+"&timeout=10s"))
	time.Sleep(1100 * time.Millisecond) // after a second pgxpool checks whether a connection is alive
	fill()
	proxy.Strand()
	defer proxy.CutAll()
	conns := d.table.pool.conns
	for i := range conns.Stat().TotalConns() {
		_, _ = d.Acquire(within(t, 50*time.Millisecond), mutex(fmt.Sprint("k", i), "a"))
	}
	before := conns.Stat().NewConnsCount()
	if _, err := d.Acquire(within(t, 2*time.Second), mutex("k", "b")); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if turns := conns.Stat().NewConnsCount() - before; turns > 100 {
		t.Errorf("%d turns in 2 s", turns)
	}
}
