// Package mysqldriver keeps locks in a table of MySQL 8 or later, or MariaDB 10.6 or later, for
// programs that have such a database anyway. It supports every kind of lock.
//
//	store, err := mysqldriver.Open("mysql://app:secret@db1/app?create=true")
//	…
//	client, err := leasehold.New(store)
//
// # How it uses the database
//
// Every lock in use is one row, which also remembers the last token: a row is deleted an hour after
// it. A verb is two round trips: one reads the row and the clock, one replaces the row if it is
// unchanged. Each is a transaction of its own, so a client that is stopped, or cut off, never keeps a
// row locked, and isolation level, time zone and --sysdate-is-now have no effect. If another process
// was faster, the verb begins again after a pause of 1 to 32 ms. Simultaneous calls of many
// goroutines on one lock are one change.
//
// Rejected: SELECT … FOR UPDATE in a transaction, which needs the same two round trips at best, and
// four on the pool of an application, and keeps the row locked while its client is stopped. A
// counter of tokens for all locks: its row would be locked until the commit of each grant.
//
// MySQL cannot push, so waiters of other processes are woken by a second table, TABLE_message: a
// process that has waited for a lock, or held one for a second, looks there every 25 ms
// ([WithPoll]) until it closes the store. Within a process no message is needed.
//
// # The clock
//
// The clock is UTC_TIMESTAMP(6) of the server, when the statement that reads the row begins. All
// programs must use the same server: the nodes of a Galera cluster have a clock each. A step back by
// less than an hour does not make tokens fall.
//
// # Connections
//
// [Open] makes a pool of at most 16 connections, which are closed after a minute without use, and
// sets autocommit and the time limits of locks in its sessions. After a timeout it uses new
// connections. The end of a caller's context does not cut off a change, since that would cost the
// connection.
//
// [New] uses the pool of the application and changes no session: if all its connections are in use,
// renewals wait too, and each dead one costs a timeout. No session may turn autocommit off, or be
// given back in the middle of a transaction. With timeout=2s&readTimeout=5s in the DSN, a silent
// server costs the pool no connection for longer. With
// innodb_lock_wait_timeout=1&lock_wait_timeout=1, no statement stays in the server while a backup
// locks the tables.
//
// # Requirements on the server
//
// The table is kept by InnoDB. An acknowledged commit must survive: with
// innodb_flush_log_at_trx_commit other than 1, a crash of the machine loses the last locks, and so
// does a failover to a replica unless it is semi-synchronous. A lost lock may be granted again while
// its holder still works; the token distinguishes the two, if the clock of the new server is not
// behind. A replica is refused if it has read_only or super_read_only on.
//
// A record has about 100 bytes for each holder and waiter, and is sent as hexadecimal digits: with
// max_allowed_packet=16M a lock may have 60 000 waiters.
//
// # Rights
//
// The user needs SELECT, INSERT, UPDATE and DELETE on both tables, and CREATE to create them. [SQL]
// returns the statements.
package mysqldriver

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// Driver is a store in a table, with every kind of lock. It is made by [New] or [Open], and is
// safe for concurrent use. It has the methods of [driver.Driver], [driver.Watcher],
// [driver.Glancer], [driver.Breaker], [driver.Checker] and [driver.Marker].
type Driver struct {
	*rooms
	table *table
}

// rooms is the store over the table.
type rooms = roomdriver.Driver

var _ driver.Checker = (*Driver)(nil)

// New returns a store that uses the connections of db, which has to be of
// github.com/go-sql-driver/mysql. It changes no setting of a session. Close does not close db. New
// makes no connection. An error matches [driver.ErrInvalid].
func New(db *sql.DB, opts ...Option) (*Driver, error) {
	if db == nil {
		return nil, fmt.Errorf("mysqldriver: no database: %w", driver.ErrInvalid)
	}
	return open(db, false, opts)
}

// connections is how many connections a pool of [Open] has at most.
const connections = 16

// Open returns a store with a pool of its own in the database that a URL names:
//
//	mysql://user:password@host:3306/database?tls=true&ca=ca.pem
//	mariadb://user:password@/database?socket=/run/mysqld/mysqld.sock
//
// Parameters are table, create=true, timeout=2s and poll=25ms, as the options of this package;
// socket; tls, as that of go-sql-driver (false, true, skip-verify, preferred); and with tls=true
// the files ca, cert and key, server-name, and skip-verify=true. Open makes no connection. An error
// matches [driver.ErrInvalid], and contains no password.
func Open(url string, opts ...Option) (*Driver, error) {
	cfg, own, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("mysqldriver: %w", storeurl.Invalid(url, err))
	}
	all := append(own, opts...)
	o, err := newOptions(all)
	if err != nil {
		return nil, fmt.Errorf("mysqldriver: %w: %w", err, driver.ErrInvalid)
	}
	cfg.Logger = new(mysql.NopLogger)
	// A statement that waits for a row, or for the table while a backup locks it, ends before its
	// caller's time does. Then the connection stays, and no statement is left in the server.
	wait := fmt.Sprint(max(1, int(o.timeout.Seconds()/2)))
	cfg.Params = map[string]string{"autocommit": "1", "innodb_lock_wait_timeout": wait, "lock_wait_timeout": wait}
	base, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("mysqldriver: %w", storeurl.Invalid(url, err))
	}
	db := sql.OpenDB(connector{base, o.timeout})
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(time.Minute)
	return open(db, true, all)
}

// connector makes the connections of [Open].
type connector struct {
	sqldriver.Connector
	timeout time.Duration
}

// Connect implements [sqldriver.Connector]. The pool sets no time limit if it connects for a call that
// waits.
func (c connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.Connector.Connect(ctx)
}

func open(db *sql.DB, owned bool, opts []Option) (*Driver, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("mysqldriver: %w: %w", err, driver.ErrInvalid)
	}
	t := newTable(db, owned, o)
	return &Driver{rooms: roomdriver.New(t), table: t}, nil
}
