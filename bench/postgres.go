package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq" // the driver that pglock requires

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/postgresdriver"
)

// postgresContenders keep a lock in PostgreSQL. Advisory locks and row locks are held by a
// connection each, which a pooler in transaction mode does not allow.
func postgresContenders() []contender {
	all := []contender{rawPostgres(), leaseholdPostgres(), advisoryPeer(), skipLockedPeer(), pglockPeer()}
	for i := range all {
		all[i].arrival = 20 * time.Millisecond // a commit, of a process that waits for its turn on the machine
	}
	return all
}

// tables are the tables of the contenders without a library.
const tables = `CREATE TABLE IF NOT EXISTS bare (key text PRIMARY KEY, id text NOT NULL);
	CREATE TABLE IF NOT EXISTS jobs (key text PRIMARY KEY)`

// manyConnections is the number of connections that a contender may need in one process.
const manyConnections = 300

func pool(addr string, conns int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(addr)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = conns
	p, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	_, err = p.Exec(context.Background(), tables)
	return p, err
}

// withPool is a process that locks through a pool.
type withPool struct {
	*pgxpool.Pool
	lock func(ctx context.Context, key string) (held, error)
}

func (p *withPool) Lock(ctx context.Context, key string) (held, error) { return p.lock(ctx, key) }
func (p *withPool) Crash(context.Context, string, time.Duration) error { return errUnfit }
func (p *withPool) Close() error                                       { p.Pool.Close(); return nil }

// pooled is a contender with one pool per process.
func pooled(name string, k kind, conns int32, lock func(p *pgxpool.Pool) func(ctx context.Context, key string) (held, error)) contender {
	return contender{name: name, kind: k, client: postgresClient, open: func(addr string, _ settings) (process, error) {
		p, err := pool(addr, conns)
		if err != nil {
			return nil, err
		}
		return &withPool{p, lock(p)}, nil
	}}
}

// rawPostgres is the limit: a row that exists or not. It has no queue, no expiry and no
// token; a caller that does not get the lock tries again after a millisecond.
func rawPostgres() contender {
	return pooled("bare INSERT and DELETE", limit, 8, func(p *pgxpool.Pool) func(context.Context, string) (held, error) {
		return func(ctx context.Context, key string) (held, error) {
			id := rand.Text()
			for {
				tag, err := p.Exec(ctx, `INSERT INTO bare VALUES ($1, $2) ON CONFLICT DO NOTHING`, key, id)
				if err != nil {
					return nil, err
				}
				if tag.RowsAffected() == 1 {
					return releaser(func() error {
						_, err := p.Exec(context.Background(), `DELETE FROM bare WHERE key = $1 AND id = $2`, key, id)
						return err
					}), nil
				}
				time.Sleep(time.Millisecond)
			}
		}
	})
}

func leaseholdPostgres() contender {
	return leaseholdOn("Leasehold, PostgreSQL", postgresClient, func(addr string) (driver.Driver, error) {
		return postgresdriver.Open(addr + "&create=true&timeout=20s")
	})
}

// advisoryPeer is a session's advisory lock, wrapped as in allisson's pglock and other libraries.
func advisoryPeer() contender {
	return pooled("advisory lock by hand", peer, manyConnections, func(p *pgxpool.Pool) func(context.Context, string) (held, error) {
		return func(ctx context.Context, key string) (held, error) {
			conn, err := p.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended($1, 0))`, key); err != nil {
				conn.Release()
				return nil, err
			}
			return releaser(func() error {
				defer conn.Release()
				_, err := conn.Exec(context.Background(), `SELECT pg_advisory_unlock(hashtextextended($1, 0))`, key)
				return err
			}), nil
		}
	})
}

// skipLockedPeer locks a row as the workers of a job queue do, and tries again after a
// millisecond if it is locked.
func skipLockedPeer() contender {
	return pooled("FOR UPDATE SKIP LOCKED", peer, manyConnections, func(p *pgxpool.Pool) func(context.Context, string) (held, error) {
		take := func(ctx context.Context, key string) (tx pgx.Tx, err error) {
			if tx, err = p.Begin(ctx); err != nil {
				return nil, err
			}
			var got string
			if err = tx.QueryRow(ctx, `SELECT key FROM jobs WHERE key = $1 FOR UPDATE SKIP LOCKED`, key).Scan(&got); err != nil {
				_ = tx.Rollback(context.WithoutCancel(ctx))
			}
			return tx, err
		}
		var known sync.Map
		return func(ctx context.Context, key string) (held, error) {
			if _, ok := known.LoadOrStore(key, true); !ok {
				if _, err := p.Exec(ctx, `INSERT INTO jobs VALUES ($1) ON CONFLICT DO NOTHING`, key); err != nil {
					return nil, err
				}
			}
			for {
				tx, err := take(ctx, key)
				if err == nil {
					return releaser(func() error { return tx.Commit(context.Background()) }), nil
				}
				if !errors.Is(err, pgx.ErrNoRows) {
					return nil, err
				}
				time.Sleep(time.Millisecond)
			}
		}
	})
}

// pglockPeer is cirello.io/pglock. It waits by trying at the frequency of its
// heartbeats, a third of the lease at most.
func pglockPeer() contender {
	return contender{name: "cirello.io/pglock", kind: peer, client: postgresClient, open: func(addr string, s settings) (process, error) {
		db, err := sql.Open("postgres", addr)
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(8)
		db.SetMaxIdleConns(8)
		client, err := pglock.New(db, pglock.WithLeaseDuration(s.ttl), pglock.WithHeartbeatFrequency(s.ttl/3))
		if err == nil {
			err = client.TryCreateTable()
		}
		if err != nil {
			_ = db.Close()
			return nil, err
		}
		return &pglockProcess{client, db}, nil
	}}
}

type pglockProcess struct {
	client *pglock.Client
	db     *sql.DB
}

func (p *pglockProcess) Lock(ctx context.Context, key string) (held, error) {
	lock, err := p.client.AcquireContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return releaser(lock.Close), nil
}

func (p *pglockProcess) Crash(context.Context, string, time.Duration) error { return errUnfit }
func (p *pglockProcess) Close() error                                       { return p.db.Close() }

// postgresFree measures locks without contention: one goroutine, 16 and 256, each
// with a lock of its own, and the bytes that the server writes for a pair.
func postgresFree(ctx context.Context, b *bench) (*table, error) {
	all := b.pick(postgresContenders())
	procs, err := b.openAll(all, settings{ttl: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	defer closeAll(procs)
	srv, err := b.postgresServer(ctx)
	if err != nil {
		return nil, err
	}
	var p50, p99, commits, wal, server, client, some, many [][]float64
	for _, g := range []*[][]float64{&p50, &p99, &commits, &wal, &server, &client, &some, &many} {
		*g = grid(all)
	}
	for round := range b.rounds + 1 { // the first one warms up
		for i, p := range procs {
			before, err := srv.spent(ctx)
			if err != nil {
				return nil, err
			}
			took, err := b.pairs(ctx, p, fmt.Sprintf("free:%d", i), nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].name, err)
			}
			after, err := srv.spent(ctx)
			if err != nil {
				return nil, err
			}
			var rates [2]float64
			for j, n := range []int{16, min(256, 3*b.waiters)} {
				w, err := b.crowdOfPairs(ctx, p, n, fmt.Sprintf("crowd:%d:%d", i, n), ownKey)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", all[i].name, err)
				}
				rates[j] = w.rate()
			}
			if round == 0 {
				continue
			}
			us := each(took, micros)
			c, w, sc, cc := after.since(before, float64(len(took)))
			p50[i], p99[i] = append(p50[i], median(us)), append(p99[i], quantile(us, 0.99))
			commits[i], wal[i] = append(commits[i], c), append(wal[i], w)
			server[i], client[i] = append(server[i], sc), append(client[i], cc)
			some[i], many[i] = append(some[i], rates[0]), append(many[i], rates[1])
		}
	}
	t := newTable("PostgreSQL: lock and unlock, each goroutine its own lock",
		column{Name: "p50 µs", Digits: 0}, column{Name: "× limit", Digits: 2}, column{Name: "p99 µs", Digits: 0},
		column{Name: "commits", Digits: 1}, column{Name: "WAL bytes", Digits: 0},
		column{Name: "server CPU µs", Digits: 0}, column{Name: "client CPU µs", Digits: 0},
		column{Name: "pairs/s, 16", Digits: 0}, column{Name: "pairs/s, 256", Digits: 0})
	least := best(all, p50, 1)
	for i, c := range all {
		t.add(c, p50[i], ratios(p50[i], least), p99[i], commits[i], wal[i], server[i], client[i], some[i], many[i])
	}
	return t, nil
}

// postgresQueue measures a lock with many waiters, which are served once each.
func postgresQueue(ctx context.Context, b *bench) (*table, error) {
	all := b.pick(postgresContenders())
	srv, err := b.postgresServer(ctx)
	if err != nil {
		return nil, err
	}
	gap, total, overtook, hung, commits, wal, again := grid(all), grid(all), grid(all), grid(all), grid(all), grid(all), grid(all)
	for round := range b.drains {
		for i, who := range all {
			before, err := srv.spent(ctx)
			if err != nil {
				return nil, err
			}
			r, err := drainOnce(ctx, b, who, b.waiters, fmt.Sprintf("queue:%d:%d", round, i))
			if err != nil {
				if err := excuse(who, err); err != nil {
					return nil, err
				}
				r = &drained{hung: b.waiters}
			}
			after, err := srv.spent(ctx)
			if err != nil {
				return nil, err
			}
			n := float64(b.waiters)
			c, w, _, _ := after.since(before, n)
			took, passed, each := millis(r.took), 100*r.overtook, millis(r.took)/n-millis(holding)
			if r.hung > 0 {
				took, passed, each = math.NaN(), math.NaN(), math.NaN()
			}
			gap[i], total[i], overtook[i] = append(gap[i], each), append(total[i], took), append(overtook[i], passed)
			hung[i] = append(hung[i], float64(r.hung))
			if round < b.crowds {
				rate := math.NaN()
				if q, err := requeueOnce(ctx, b, who, fmt.Sprintf("again:%d:%d", round, i)); err == nil {
					rate = q.rate(b.crowd)
				} else if err := excuse(who, err); err != nil {
					return nil, err
				}
				again[i] = append(again[i], rate)
			}
			commits[i], wal[i] = append(commits[i], c), append(wal[i], w/1024)
		}
	}
	t := newTable(fmt.Sprintf("PostgreSQL: %d waiters in %d clients, hold 1 ms, served once each", b.waiters, processes),
		column{Name: "total ms", Digits: 0}, column{Name: "gap ms", Digits: 2}, column{Name: "overtook, %", Digits: 0, None: true},
		column{Name: fmt.Sprintf("not served in %v", b.patience), Digits: 0, None: true},
		column{Name: "commits per waiter", Digits: 1}, column{Name: "WAL KiB per waiter", Digits: 1},
		column{Name: "grants/s if they queue again", Digits: 0})
	for i, c := range all {
		t.add(c, total[i], gap[i], overtook[i], hung[i], commits[i], wal[i], again[i])
	}
	return t, nil
}

// postgresRenewal measures the cost of keeping many leases alive. Locks held by a connection
// need no renewal, but a connection.
func postgresRenewal(ctx context.Context, b *bench) (*table, error) {
	srv, err := b.postgresServer(ctx)
	if err != nil {
		return nil, err
	}
	ttl := 5 * b.ttl
	t := newTable(fmt.Sprintf("PostgreSQL: renewal of %d leases, TTL %v", b.leases, ttl),
		column{Name: "commits/s", Digits: 1}, column{Name: "WAL bytes per renewal", Digits: 0},
		column{Name: "server CPU, %", Digits: 1}, column{Name: "client CPU, %", Digits: 1}, column{Name: "locks lost", Digits: 0, None: true})
	for i, c := range b.pick([]contender{leaseholdPostgres(), pglockPeer()}) {
		row, err := postgresRenewalOf(ctx, b, srv, c, ttl, fmt.Sprintf("renewal:%d", i))
		if err != nil {
			if err := excuse(c, err); err != nil {
				return nil, err
			}
			row = make([][]float64, len(t.Columns))
		}
		t.add(c, row...)
	}
	return t, nil
}

func postgresRenewalOf(ctx context.Context, b *bench, srv *postgresServer, c contender, ttl time.Duration, name string) ([][]float64, error) {
	p, err := b.open(c, settings{ttl: ttl})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	leases := make([]held, b.leases)
	if err := spread(b.leases, func(i int) (err error) {
		leases[i], err = p.Lock(ctx, fmt.Sprintf("%s:%d", name, i))
		return err
	}); err != nil {
		return nil, err
	}
	time.Sleep(ttl / 3) // until renewals are under way
	before, err := srv.spent(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	time.Sleep(2 * ttl / 3)
	took := time.Since(start).Seconds()
	after, err := srv.spent(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	lost := 0.0
	_ = spread(b.leases, func(i int) error {
		if leases[i].Release() != nil {
			mu.Lock()
			defer mu.Unlock()
			lost++
		}
		return nil
	})
	commits, _, server, client := after.since(before, took)
	_, wal, _, _ := after.since(before, float64(b.leases)*took/(ttl.Seconds()/3))
	return [][]float64{{commits}, {wal}, {server / 1e4}, {client / 1e4}, {lost}}, nil
}
