// Package mysqldriver keeps locks in a table of MySQL 8 or MariaDB 10.6.
package mysqldriver

import (
	"database/sql"
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
// the files ca, cert and key, server_name, and skip_verify=true. Open makes no connection. An error
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
	// A statement that waits for a row ends before its caller's time does, and then the connection
	// stays.
	cfg.Params = map[string]string{"autocommit": "1", "innodb_lock_wait_timeout": fmt.Sprint(max(1, int(o.timeout.Seconds()/2)))}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("mysqldriver: %w", storeurl.Invalid(url, err))
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(time.Minute)
	return open(db, true, all)
}

func open(db *sql.DB, owned bool, opts []Option) (*Driver, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("mysqldriver: %w: %w", err, driver.ErrInvalid)
	}
	t := newTable(db, owned, o)
	return &Driver{rooms: roomdriver.New(t), table: t}, nil
}
