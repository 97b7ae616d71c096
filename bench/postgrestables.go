package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// postgresServer starts PostgreSQL at the first call: without fsync, because Redis and etcd
// do not persist here either, and with enough connections for contenders that hold one per lock.
func (b *bench) postgresServer() *postgrestest.Server {
	if b.pg == nil {
		b.pg = postgrestest.Start(&b.lasting, "max_connections=1400", "autovacuum_naptime=5s")
	}
	return b.pg
}

// expense is the cost to the server and its client.
type expense struct {
	commits, wal   float64 // a transaction counts if it writes
	server, client time.Duration
}

// spent returns the cost so far.
func (b *bench) spent(ctx context.Context, admin *pgx.Conn) (e expense) {
	var pids []int
	check(admin.QueryRow(ctx, `SELECT pg_current_xact_id()::text::float8, pg_current_wal_insert_lsn() - '0/0'::pg_lsn,
		ARRAY(SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())`,
	).Scan(&e.commits, &e.wal, &pids))
	for _, pid := range pids {
		e.server += computed(pid)
	}
	e.client = processCPU()
	return e
}

// expenseOf returns the cost while f runs. One commit, its own, is not counted.
func (b *bench) expenseOf(ctx context.Context, f func()) expense {
	admin := need(pgx.Connect(ctx, b.postgresServer().URL()))
	defer admin.Close(ctx)
	before := b.spent(ctx, admin)
	f()
	e := b.spent(ctx, admin)
	return expense{e.commits - before.commits - 1, e.wal - before.wal, e.server - before.server, e.client - before.client}
}

// computed returns the CPU time of a process, as Linux counts it: in hundredths of
// a second. 0 if it has ended.
func computed(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ") // behind the name
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// postgresFree measures locks without contention: one goroutine, 16 and 256, each
// with a lock of its own, and the bytes that the server writes for a pair.
func postgresFree(ctx context.Context, b *bench) *table {
	t := newTable("PostgreSQL: lock and unlock, each goroutine its own lock",
		column{Name: "p50 µs"}, column{Name: "× limit", Digits: 2, by: least}, column{Name: "p99 µs"},
		column{Name: "commits", Digits: 1}, column{Name: "WAL bytes"},
		column{Name: "server CPU µs"}, column{Name: "client CPU µs"},
		column{Name: "pairs/s, 16"}, column{Name: "pairs/s, 256"})
	all := b.pick(postgresContenders()...)
	return b.compareOpen(t, all, halfMinute, func(c contender, p process, _ string) []float64 {
		key := "free:" + c.name // in all rounds: a row exists
		var took []time.Duration
		e := b.expenseOf(ctx, func() { took = b.pairs(ctx, p, key, nil) })
		us, n := each(took, micros), float64(len(took))
		figures := []float64{median(us), quantile(us, 0.99), e.commits / n, e.wal / n, micros(e.server) / n, micros(e.client) / n}
		for _, n := range []int{16, min(256, 3*b.waiters)} {
			figures = append(figures, b.crowdOfPairs(ctx, n, fmt.Sprintf("%s:%d", key, n), ownKey, p).rate())
		}
		return figures
	})
}

// postgresQueue measures a lock with many waiters, which are served once each.
func postgresQueue(ctx context.Context, b *bench) *table {
	t := newTable(fmt.Sprintf("PostgreSQL: %d waiters in %d clients, hold 1 ms, served once each", b.waiters, processes),
		column{Name: "total ms"}, column{Name: "gap ms", Digits: 2}, column{Name: "overtook, %", None: true},
		b.notServed(b.waiters),
		column{Name: "commits per waiter", Digits: 1}, column{Name: "WAL KiB per waiter", Digits: 1})
	return b.compare(t, b.pick(postgresContenders()...), b.drains, func(_ int, c contender, key string) []float64 {
		var r drained
		e := b.expenseOf(ctx, func() { r = drainOnce(ctx, b, c, b.waiters, key) })
		n := float64(b.waiters)
		return []float64{r.took, r.took/n - millis(holding), r.overtook, r.hung, e.commits / n, e.wal / 1024 / n}
	})
}

// postgresRenewal measures the cost of keeping many leases alive. Locks held by a connection
// need no renewal, but a connection.
func postgresRenewal(ctx context.Context, b *bench) *table {
	ttl := 5 * b.ttl
	t := newTable(fmt.Sprintf("PostgreSQL: renewal of %d leases, TTL %v", b.leases, ttl),
		column{Name: "commits/s", Digits: 1}, column{Name: "WAL bytes per renewal"},
		column{Name: "server CPU, %", Digits: 1}, column{Name: "client CPU, %", Digits: 1}, column{Name: "locks lost", None: true})
	return b.compare(t, b.pick(leaseholdPostgres(), pglockPeer()), 1, func(_ int, c contender, key string) []float64 {
		p := b.open(c, settings{ttl: ttl})
		all := newLeases(key, b.leases)
		all.lock(ctx, p)
		time.Sleep(ttl / 3) // until renewals are under way
		var took float64
		e := b.expenseOf(ctx, func() {
			start := time.Now()
			time.Sleep(2 * ttl / 3)
			took = time.Since(start).Seconds()
		})
		renewals := float64(b.leases) * took / (ttl.Seconds() / 3)
		percent := func(d time.Duration) float64 { return 100 * d.Seconds() / took }
		return []float64{e.commits / took, e.wal / renewals, percent(e.server), percent(e.client), all.release()}
	})
}
