package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
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

func pool(addr string, conns int32) *pgxpool.Pool {
	cfg := need(pgxpool.ParseConfig(addr))
	cfg.MaxConns = conns
	p := need(pgxpool.NewWithConfig(context.Background(), cfg))
	_ = need(p.Exec(context.Background(), tables))
	return p
}

// pooled is a contender with one pool per process.
func pooled(name string, k kind, conns int32, lock func(p *pgxpool.Pool) lockFunc) contender {
	return contender{name: name, kind: k, client: postgresClient, open: func(addr string, _ settings) process {
		p := pool(addr, conns)
		return &functions{lock: lock(p), close: p.Close}
	}}
}

// rawPostgres is the limit: a row that exists or not. It has no queue, no expiry and no
// token; a caller that does not get the lock tries again after a millisecond.
func rawPostgres() contender {
	return pooled("bare INSERT and DELETE", limit, 8, func(p *pgxpool.Pool) lockFunc {
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
	return pooled("advisory lock by hand", peer, manyConnections, func(p *pgxpool.Pool) lockFunc {
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
	return pooled("FOR UPDATE SKIP LOCKED", peer, manyConnections, func(p *pgxpool.Pool) lockFunc {
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
	return contender{name: "cirello.io/pglock", kind: peer, client: postgresClient, open: func(addr string, s settings) process {
		db := need(sql.Open("postgres", addr))
		db.SetMaxOpenConns(8)
		db.SetMaxIdleConns(8)
		client := need(pglock.New(db, pglock.WithLeaseDuration(s.ttl), pglock.WithHeartbeatFrequency(s.ttl/3)))
		check(client.TryCreateTable())
		lock := func(ctx context.Context, key string) (held, error) {
			lock, err := client.AcquireContext(ctx, key)
			if err != nil {
				return nil, err
			}
			return releaser(lock.Close), nil
		}
		return &functions{lock: lock, close: func() { _ = db.Close() }}
	}}
}
