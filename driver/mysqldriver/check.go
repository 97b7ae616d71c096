package mysqldriver

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/doctor"
)

// Check implements [driver.Checker]. It needs no more rights than locks do, and makes no change.
func (d *Driver) Check(ctx context.Context) (driver.Report, error) {
	c := &checkup{cfg: d.table.cfg}
	cfg := *d.table
	cfg.cfg.create = false
	err := cfg.with(ctx, func(ctx context.Context, conn *sql.Conn) error {
		if err := c.server(ctx, conn); err != nil {
			return err
		}
		for _, table := range []string{c.cfg.table, c.cfg.table + messageSuffix} {
			if err := c.table(ctx, conn, table); err != nil {
				return err
			}
		}
		return nil
	})
	return c.Report, d.table.unavailable(err)
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

// facts are read by names, because servers do not have all of them.
const facts = `SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'hostname', 'port', 'server_uuid', 'server_uid', 'read_only',
	'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled',
	'wsrep_on', 'max_connections')`

func (c *checkup) server(ctx context.Context, conn *sql.Conn) error {
	var now, commits, waits, replicas, sessions int64
	var name string
	before := time.Now()
	err := conn.QueryRowContext(ctx, `SELECT `+clock+`, @@autocommit, GREATEST(@@innodb_lock_wait_timeout, @@lock_wait_timeout),
		(SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%')`).Scan(&now, &commits, &waits, &replicas)
	took := time.Since(before)
	if err != nil {
		return err
	}
	if err := conn.QueryRowContext(ctx, `SHOW GLOBAL STATUS LIKE 'Threads_connected'`).Scan(&name, &sessions); err != nil {
		return err
	}
	rows, err := conn.QueryContext(ctx, facts)
	if err != nil {
		return err
	}
	defer rows.Close()
	is := make(map[string]string)
	for rows.Next() {
		var value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		is[name] = value
	}
	at := is["hostname"] + ":" + is["port"]
	c.Nodes = []driver.Node{{Name: at, Server: cmp.Or(is["server_uuid"], is["server_uid"], at)}}
	c.judge(supported(is["version"]), driver.Warning, "version", is["version"], is["version"]+" is older than MySQL 8 and MariaDB 10.6",
		"the store is not tested with it", "take a later version")
	c.judge(is["read_only"] == "OFF", driver.Unsafe, "role", "is a primary", "is read-only, as a replica",
		"no lock can be had", "connect to the primary")
	c.judge(commits == 1, driver.Unsafe, "autocommit", "is on", "autocommit is off", "no lock can be had",
		"remove autocommit from the DSN of the pool")
	c.judge(is["innodb_flush_log_at_trx_commit"] == "1", driver.Warning, "innodb_flush_log_at_trx_commit",
		"is 1, so a commit that was answered survives a crash", "innodb_flush_log_at_trx_commit is "+is["innodb_flush_log_at_trx_commit"],
		"a crash of the machine loses the locks of the last second, so two clients may hold one lock", "set innodb_flush_log_at_trx_commit=1")
	c.judge(is["log_bin"] != "ON" || is["sync_binlog"] == "1", driver.Warning, "sync_binlog",
		"no commit is missing in the binary log after a crash",
		"sync_binlog is "+is["sync_binlog"],
		"after a crash of the machine replicas may differ from the server, and lack locks", "set sync_binlog=1")
	c.replication(is, replicas)
	c.judge(is["wsrep_on"] != "ON", driver.Warning, "galera", "is no cluster with several primaries", "is a node of a Galera cluster",
		"each node has a clock, and may be behind another", "connect all programs to the same node, and synchronise the clocks")
	ahead := (time.UnixMicro(now).Sub(before) - took/2).Abs().Round(time.Millisecond)
	differs := fmt.Sprintf("differs from ours by %v", ahead)
	c.judge(ahead < 10*time.Second, driver.Warning, "clock", differs, differs,
		"tokens are made from it: tokens of a server that takes over might be smaller", "have the clocks synchronised")
	most, _ := strconv.ParseInt(is["max_connections"], 10, 64)
	used := fmt.Sprintf("%d of %d connections are used", sessions, most)
	c.judge(sessions*5 < most*4, driver.Warning, "max_connections", used, used,
		fmt.Sprintf("a process takes up to %d when it is busy, and locks fail without one", connections),
		"raise max_connections")
	c.judge(float64(waits) <= max(1, c.cfg.timeout.Seconds()), driver.Notice, "lock_wait_timeout", "ends before the store's timeout",
		fmt.Sprintf("a statement waits %d s for a locked row or table, longer than the store's timeout of %v", waits, c.cfg.timeout),
		"it stays in the server, so a backup that locks tables can use all connections up",
		"add innodb_lock_wait_timeout=1&lock_wait_timeout=1 to the DSN of the pool")
	return rows.Err()
}

// supported reports whether a version is one that the store is made for.
func supported(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	if strings.Contains(version, "MariaDB") {
		return err == nil && (major > 10 || major == 10 && minor >= 6)
	}
	return err == nil && major >= 8
}

// replication reports which locks a failover may lose.
func (c *checkup) replication(is map[string]string, replicas int64) {
	const why = "a failover forgets the last locks, and two may hold one"
	const remedy = "use semi-synchronous replication, or check tokens at the resource"
	c.Judge("replication",
		doctor.If(is["rpl_semi_sync_master_enabled"] == "ON" || is["rpl_semi_sync_source_enabled"] == "ON", driver.Good,
			"a commit waits for a replica, as long as one answers in time", "", ""),
		doctor.If(replicas > 0, driver.Warning, fmt.Sprintf("%d replicas follow, and no commit waits for them", replicas), why, remedy),
		doctor.If(is["log_bin"] == "ON", driver.Notice,
			"replicas may follow: the binary log is on, and only a user with PROCESS sees them", why, remedy),
		doctor.If(true, driver.Notice, "no replica follows", "while the server is away no lock can be had", ""))
}

func (c *checkup) table(ctx context.Context, conn *sql.Conn, name string) error {
	var engine, comment string
	err := conn.QueryRowContext(ctx, `SELECT COALESCE(engine, 'VIEW'), table_comment FROM information_schema.tables
		WHERE table_schema = DATABASE() AND table_name = `+hex(name)).Scan(&engine, &comment)
	quoted := quoted(name)
	if errors.Is(err, sql.ErrNoRows) {
		severity, remedy := driver.Unsafe, "open the store with create=true, or execute:\n"+c.cfg.schemaSQL()
		if c.cfg.create {
			severity, remedy = driver.Notice, ""
		}
		c.Found(severity, "table", "there is no table "+quoted+" that the user may see", "it has to be there before a lock can be had", remedy)
		return nil
	}
	if err != nil {
		return err
	}
	c.judge(strings.HasPrefix(comment, version+":"), driver.Warning, "table", quoted+" is of this version",
		fmt.Sprintf("the comment of %s is %q", quoted, comment),
		"it was made by another version, or by hand", "compare it with the SQL of leasehold:\n"+c.cfg.schemaSQL())
	c.judge(engine == "InnoDB", driver.Unsafe, "engine", quoted+" is kept by InnoDB", quoted+" is kept by "+engine,
		"a crash of the server may lose held locks, or the table", "ALTER TABLE "+quoted+" ENGINE = InnoDB")
	var lacking []string
	for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
		statement := strings.NewReplacer("TABLE", quoted).Replace(harmless[right])
		if _, err := conn.ExecContext(ctx, statement); code(err) == 1142 || code(err) == 1143 {
			lacking = append(lacking, right)
		}
	}
	c.judge(len(lacking) == 0, driver.Unsafe, "rights", "on "+quoted+" are enough",
		"the user lacks "+strings.Join(lacking, ", ")+" on "+quoted,
		"no lock can be had", "GRANT SELECT, INSERT, UPDATE, DELETE ON "+quoted)
	return nil
}

// harmless are statements without an effect that need a right.
var harmless = map[string]string{
	"SELECT": `SELECT 1 FROM TABLE WHERE FALSE`, "INSERT": `INSERT INTO TABLE SELECT * FROM TABLE WHERE FALSE`,
	"UPDATE": `UPDATE TABLE SET ends = 0 WHERE FALSE`, "DELETE": `DELETE FROM TABLE WHERE FALSE`,
}
