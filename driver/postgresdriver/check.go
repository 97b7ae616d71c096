package postgresdriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/doctor"
)

// Check implements [driver.Checker]. It needs no more rights than locks do.
func (d *Driver) Check(ctx context.Context) (driver.Report, error) {
	c := &checkup{cfg: d.table.cfg}
	ctx, cancel := context.WithTimeout(ctx, d.table.cfg.timeout)
	defer cancel()
	conn, err := d.table.pool.take(ctx, ordinary)
	if err != nil {
		return c.Report, unavailable(explain(connectError(ctx, err), c.cfg))
	}
	defer func() { d.table.pool.give(conn, nil) }()
	if err = c.server(ctx, conn); err == nil {
		err = c.table(ctx, conn)
	}
	if err != nil {
		return c.Report, unavailable(explain(err, c.cfg))
	}
	return c.Report, nil
}

// checkup is one look at a store.
type checkup struct {
	doctor.Checkup
	cfg options
}

// judge adds a finding that is good if ok.
func (c *checkup) judge(ok bool, severity driver.Severity, check, good, what, why, remedy string) {
	c.Judge(check, doctor.If(!ok, severity, what, why, remedy), doctor.Good(good))
}

// serverFacts are read in one statement, so that the clock is as near as can be.
const serverFacts = `SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery(),
	current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), current_setting('fsync'),
	current_setting('autovacuum'), current_setting('server_encoding'), (SELECT count(*) FROM pg_stat_replication),
	pg_backend_pid(), (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, (SELECT system_identifier FROM pg_control_system())::text, ` + micros

func (c *checkup) server(ctx context.Context, conn *pgxpool.Conn) error {
	var number, replicas, pid int
	var version, commit, standbys, fsync, vacuum, encoding, id string
	var replica bool
	var started, now time.Time
	before := time.Now()
	err := conn.QueryRow(ctx, serverFacts).Scan(&number, &version, &replica, &commit, &standbys, &fsync, &vacuum, &encoding,
		&replicas, &pid, (*instant)(&started), &id, (*instant)(&now))
	if err != nil {
		return err
	}
	at := conn.Conn().Config()
	c.Nodes = []driver.Node{{
		Name: fmt.Sprintf("%s:%d", at.Host, at.Port), Server: fmt.Sprint(id, "/", started.UnixMicro()), Data: id,
	}}
	c.judge(number >= 140000, driver.Unsafe, "version", "PostgreSQL "+version,
		"PostgreSQL "+version, "the store needs features of a later version", "take PostgreSQL 14 or later")
	c.judge(!replica, driver.Unsafe, "role", "is a primary",
		"is a replica", "no lock can be had", "connect to the primary, or name all hosts and add target_session_attrs=read-write")
	c.judge(fsync == "on", driver.Warning, "fsync", "commits survive a crash of the machine",
		"fsync is off", "a crash of the machine loses held locks, or the database", "set fsync=on")
	c.judge(commit != "off", driver.Warning, "synchronous_commit", "is "+commit+", so a commit that was answered survives a crash of the server",
		"synchronous_commit is off", "a crash of the server loses the locks of the last second, so two clients may hold one lock",
		"add synchronous_commit=on to the URL, or set it for the role")
	c.replication(replicas, standbys, commit)
	c.judge(vacuum == "on", driver.Warning, "autovacuum", "cleans the table up",
		"autovacuum is off", "the table grows with every name that was used once", "set autovacuum=on")
	c.judge(encoding == "UTF8", driver.Warning, "encoding", "every name of a lock can be kept",
		"the database is encoded as "+encoding, "names that it does not know are refused", "take a database in UTF8")
	c.clock(now.Sub(before), time.Since(before))
	c.judge(uint32(pid) == conn.Conn().PgConn().PID(), driver.Notice, "pooler", "the connection leads to the server itself", //nolint:gosec // a pid
		"a pooler stands between", "in transaction mode it delivers no notifications, and waiters ask twice a second",
		"give the address of the server with listen=, and add default_query_exec_mode=exec where it mixes up prepared statements")
	return c.limits(ctx, conn)
}

// replication reports which locks a failover may lose.
func (c *checkup) replication(replicas int, standbys, commit string) {
	c.Judge("replication",
		doctor.If(standbys != "" && commit != "off" && commit != "local", driver.Good, "a commit waits for "+standbys, "", ""),
		doctor.If(replicas > 0, driver.Warning, fmt.Sprintf("%d replicas follow, and no commit waits for them", replicas),
			"a failover forgets the last locks, and two may hold one", "set synchronous_standby_names, and synchronous_commit=on"),
		doctor.If(true, driver.Notice, "no replica follows", "while the server is away no lock can be had", ""))
}

// clock compares the server's clock with ours, as far as the round trip lets it.
func (c *checkup) clock(ahead, took time.Duration) {
	const bearable = 10 * time.Second
	ahead -= took / 2
	what := fmt.Sprintf("differs from ours by %v", ahead.Abs().Round(time.Millisecond))
	c.judge(ahead.Abs() < bearable, driver.Warning, "clock", what, what,
		"tokens are made from it: tokens of a server that takes over might be smaller", "have the clocks synchronised")
}

// limits looks whether the timeouts of a transaction have effect.
func (c *checkup) limits(ctx context.Context, conn *pgxpool.Conn) error {
	want := fmt.Sprint(c.cfg.timeout.Milliseconds(), "ms")
	var same bool
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, limit, want, want); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT bool_and(setting || unit = $1) FROM pg_settings
			WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout')`, want).Scan(&same)
	})
	c.judge(same, driver.Warning, "timeouts", fmt.Sprintf("a transaction that is stopped gives the lock's row back after %v", c.cfg.timeout),
		"the timeouts of a transaction have no effect", "a stopped process may keep other processes from a lock", "connect without the pooler")
	return err
}

// rightsNeeded lists the rights on the table.
var rightsNeeded = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}

// tableFacts are of the table, if it is there and may be named.
const tableFacts = `SELECT coalesce(obj_description(r.oid, 'pg_class'), ''), (SELECT relpersistence::text FROM pg_class WHERE oid = r.oid),
	ARRAY(SELECT p FROM unnest($2::text[]) AS p WHERE NOT has_table_privilege(r.oid, p)
		UNION ALL SELECT 'USAGE ON SEQUENCE ' || $3 WHERE NOT has_sequence_privilege(to_regclass($3), 'USAGE')),
	to_regclass($3) IS NOT NULL,
	coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0), pg_size_pretty(pg_total_relation_size(r.oid))
	FROM (SELECT to_regclass($1)::oid AS oid) AS r LEFT JOIN pg_stat_user_tables AS s ON s.relid = r.oid WHERE r.oid IS NOT NULL`

func (c *checkup) table(ctx context.Context, conn *pgxpool.Conn) error {
	var comment, persistence, size string
	var lacking []string
	var counts bool
	var live, dead int64
	err := conn.QueryRow(ctx, tableFacts, c.cfg.name(), rightsNeeded, c.cfg.sequence()).Scan(&comment, &persistence, &lacking, &counts, &live, &dead, &size)
	if errors.Is(err, pgx.ErrNoRows) {
		severity, remedy := driver.Unsafe, "open the store with create=true, or execute:\n"+c.cfg.schemaSQL()
		if c.cfg.create {
			severity, remedy = driver.Notice, ""
		}
		c.Found(severity, "table", "there is no table "+c.cfg.name(), "it has to be created before a lock can be had", remedy)
		return nil
	}
	if err != nil {
		return err
	}
	c.judge(strings.HasPrefix(comment, version+":"), driver.Warning, "table", c.cfg.name()+" is of this version",
		fmt.Sprintf("the comment of %s is %q", c.cfg.name(), comment), "it was made by another version, or by hand",
		"compare it with the SQL of leasehold:\n"+c.cfg.schemaSQL())
	c.judge(persistence == "p", driver.Unsafe, "persistence", "the table survives a crash of the server",
		map[string]string{"u": "the table is UNLOGGED", "t": "the table is temporary"}[persistence],
		"a crash of the server, or the end of a session, forgets the locks that are held, and two may hold one",
		"ALTER TABLE "+c.cfg.name()+" SET LOGGED, or create the table again if it is temporary")
	c.judge(len(lacking) == 0, driver.Unsafe, "rights", "are enough", "the role lacks "+strings.Join(lacking, ", "), "no lock can be had",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON "+c.cfg.name()+"; GRANT USAGE ON SEQUENCE "+c.cfg.sequence())
	c.judge(counts, driver.Unsafe, "sequence", "counts the tokens", "there is no sequence "+c.cfg.sequence(), "no lock can be had",
		"open the store with create=true, or execute:\n"+c.cfg.schemaSQL())
	c.judge(dead < 10_000+10*live, driver.Warning, "bloat", "the table takes "+size,
		fmt.Sprintf("%d dead and %d live rows, in %s", dead, live, size), "every call takes longer",
		"end transactions that have been open for long, and make autovacuum run more often")
	if len(lacking) == 0 && counts {
		return c.counter(ctx, conn)
	}
	return nil
}

// counter compares the counter with the clock. Without the row no token was needed yet.
func (c *checkup) counter(ctx context.Context, conn *pgxpool.Conn) error {
	var ahead int64
	err := conn.QueryRow(ctx, c.cfg.sql(counterAhead), c.cfg.sequence()).Scan(&ahead)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	c.judge(ahead < int64(24*time.Hour/time.Microsecond), driver.Unsafe, "counter", "tokens are not ahead of the clock",
		fmt.Sprintf("the counter of tokens is %.3g days ahead of the clock", float64(ahead)/86400e6),
		"the clock was wrong, or the counter was changed; tokens that are no longer below 2^53 are refused",
		"correct the clock; if no resource has seen these tokens, execute: DELETE FROM "+c.cfg.name()+" WHERE key = "+counterKey)
	return err
}
