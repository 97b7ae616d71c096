package mysqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// table is a roomdriver.Table, by compare-and-swap, and a Reader, Sweeper and Notifier. Each
// statement is a transaction of its own, so no row stays locked while a client does something
// else, or is stopped.
//
// All values are hexadecimal literals or numbers: a statement with arguments would take a further
// round trip to prepare it.
type table struct {
	cfg   options
	db    *sql.DB
	owned bool // db is closed with the table

	ctx   context.Context // ends with Close
	close context.CancelFunc
}

func newTable(db *sql.DB, owned bool, o options) *table {
	t := &table{cfg: o, db: db, owned: owned}
	t.ctx, t.close = context.WithCancel(context.Background())
	return t
}

// clock is the server's clock in µs since 1970, when the statement began. It depends on neither
// the time zone of the session nor that of the server.
const clock = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

// hex returns bytes as a literal.
func hex[T string | []byte](bytes T) string { return fmt.Sprintf("x'%x'", bytes) }

// Update implements [roomdriver.Table].
func (t *table) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.timeout)
	defer cancel()
	return roomdriver.FromSwapper(t).Update(ctx, key, f)
}

// Load implements [roomdriver.Swapper]. The name of a version is the clock, and when the record was
// written if there is one.
//
// It refuses a replica: a call without changes is answered from the data read, and a replica may
// not have a lease yet.
func (t *table) Load(ctx context.Context, key string) (record []byte, version string, now time.Time, err error) {
	var us, commits int64
	var readOnly string
	var written sql.NullInt64
	err = t.with(context.WithoutCancel(ctx), func(ctx context.Context, conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, `SELECT `+clock+`, @@autocommit, @@global.read_only, t.written, t.record
			FROM (SELECT 1) AS one LEFT JOIN `+t.cfg.name()+` AS t ON t.name = `+hex(key)).
			Scan(&us, &commits, &readOnly, &written, &record)
	})
	switch {
	case err != nil:
		return nil, "", now, t.unavailable(err)
	case readOnly != "0" && readOnly != "OFF":
		return nil, "", now, t.unavailable(errReadOnly)
	case commits != 1:
		return nil, "", now, t.unavailable(errNoCommit)
	}
	// The statement began before it read the record, which a later one may have written.
	if ahead := written.Int64 - us; ahead > 0 && ahead < time.Second.Microseconds() {
		us = written.Int64
	}
	if version = fmt.Sprint(us); written.Valid {
		version += fmt.Sprint(" ", written.Int64)
	}
	return record, version, time.UnixMicro(us), nil
}

// longest is how many bytes a MEDIUMBLOB has. Without strict mode the server cuts off the rest.
const longest = 1<<24 - 1

// Swap implements [roomdriver.Swapper]. A statement that reaches the server too late has no effect:
// its caller has gone, and a row may have come and gone since it was read.
func (t *table) Swap(ctx context.Context, key, version string, next []byte) (ok bool, err error) {
	var now, written int64
	n, _ := fmt.Sscan(version, &now, &written)
	inTime := fmt.Sprintf(`%s <= %d`, clock, now+t.cfg.timeout.Microseconds())
	if !t.owned { // Load may have seen another session
		inTime += ` AND @@autocommit`
	}
	this := fmt.Sprintf(` WHERE name = %s AND written = %d AND %s`, hex(key), written, inTime)
	var ends int64
	if len(next) > longest {
		return false, fmt.Errorf("%w: the record of this lock has %d bytes, more than %d", driver.ErrUnavailable, len(next), longest)
	}
	if next != nil {
		end, _, err := roomdriver.End(next)
		if err != nil {
			return false, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		ends = end.UnixMilli()
	}
	var statement string
	switch name, now := t.cfg.name(), max(now, written+1); {
	case next == nil:
		statement = `DELETE FROM ` + name + this
	case n == 2:
		statement = fmt.Sprintf(`UPDATE %s SET record = %s, ends = %d, written = %d%s`, name, hex(next), ends, now, this)
	default:
		statement = fmt.Sprintf(`INSERT INTO %s (name, record, ends, written) SELECT %s, %s, %d, %d FROM DUAL WHERE %s`,
			name, hex(key), hex(next), ends, now, inTime)
	}
	err = t.with(context.WithoutCancel(ctx), func(ctx context.Context, conn *sql.Conn) error {
		done, err := conn.ExecContext(ctx, statement)
		if err == nil {
			n, e := done.RowsAffected()
			ok, err = n > 0, e
		}
		return err
	})
	if overtaken(err) {
		return false, nil
	}
	return ok, t.outcome(err)
}

// with runs f with a connection. The end of ctx cuts off a statement, which costs the connection:
// Load and Swap pass a context without the caller's end, and the driver does not wait for them. If
// there is no table, and it may be created, f runs again after that. Without a table f has no effect.
func (t *table) with(ctx context.Context, f func(ctx context.Context, conn *sql.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.timeout)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	defer func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.dropIdle() // they may be as dead
		}
	}()
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return notSent{err}
	}
	defer conn.Close()
	err = f(ctx, conn)
	if !t.cfg.create || code(err) != noTable {
		return err
	}
	for statement := range strings.SplitSeq(strings.TrimSuffix(t.cfg.schemaSQL(), ";\n"), ";\n") {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return notSent{err}
		}
	}
	return f(ctx, conn)
}

// dropIdle makes the next calls use new connections.
func (t *table) dropIdle() {
	if t.owned {
		t.db.SetMaxIdleConns(-1)
		t.db.SetMaxIdleConns(connections)
	}
}

// Read implements [roomdriver.Reader].
func (t *table) Read(ctx context.Context, key string) (record []byte, now time.Time, err error) {
	record, _, now, err = t.Load(ctx, key)
	return record, now, err
}

// List implements [roomdriver.Table]. The cursor is the last key of a page. UTF-8 has no byte ff.
func (t *table) List(ctx context.Context, prefix, cursor string) (page roomdriver.Page, err error) {
	const size = 256
	err = t.with(ctx, func(ctx context.Context, conn *sql.Conn) error {
		page = roomdriver.Page{}
		rows, err := conn.QueryContext(ctx, fmt.Sprintf(`SELECT name, record, %s FROM %s
			WHERE name >= %s AND name < %s AND name > %s ORDER BY name LIMIT %d`,
			clock, t.cfg.name(), hex(prefix), hex(prefix+"\xff"), hex(cursor), size))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var e roomdriver.Entry
			var us int64
			if err := rows.Scan(&e.Key, &e.Record, &us); err != nil {
				return err
			}
			page.Entries, page.Now = append(page.Entries, e), time.UnixMicro(us)
		}
		if len(page.Entries) == size {
			page.Next = page.Entries[size-1].Key
		}
		return rows.Err()
	})
	return page, t.unavailable(err)
}

// Sweep implements [roomdriver.Sweeper]. It also removes old messages, which listeners have
// fetched long since.
func (t *table) Sweep(ctx context.Context, limit int) (removed int, err error) {
	err = t.with(ctx, func(ctx context.Context, conn *sql.Conn) error {
		_, err := remove(ctx, conn, fmt.Sprintf(`DELETE FROM %s WHERE sent <= %s - %d LIMIT %d`,
			t.cfg.messages(), clock, time.Minute.Microseconds(), limit))
		if err == nil {
			removed, err = remove(ctx, conn, fmt.Sprintf(`DELETE FROM %s WHERE ends <= %s DIV 1000 LIMIT %d`, t.cfg.name(), clock, limit))
		}
		return err
	})
	return removed, t.outcome(err)
}

// remove deletes rows. It repeats a deletion that the server has rolled back because of another
// transaction.
func remove(ctx context.Context, conn *sql.Conn, deletion string) (int, error) {
	done, err := conn.ExecContext(ctx, deletion)
	for overtaken(err) {
		done, err = conn.ExecContext(ctx, deletion)
	}
	if err != nil {
		return 0, err
	}
	n, err := done.RowsAffected()
	return int(n), err
}

// Notify implements [roomdriver.Notifier].
func (t *table) Notify(ctx context.Context, messages []roomdriver.Message) error {
	values := make([]string, len(messages))
	for i, m := range messages {
		values[i] = fmt.Sprintf(`(%s, %s, %s)`, hex(m.Address), hex(m.Body), clock)
	}
	return t.with(ctx, func(ctx context.Context, conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, `INSERT INTO `+t.cfg.messages()+` (address, message, sent) VALUES `+strings.Join(values, ", "))
		return err
	})
}

const (
	offline = 250 * time.Millisecond // how long a listener waits after a failure
	late    = 5 * time.Second        // how long the commit of a message to everybody may take
)

// Listen implements [roomdriver.Listener], by looking for messages. A smaller id may follow a
// greater one, since transactions end in another order than they begin. So a listener deletes the
// messages to itself after it has read them, and remembers the ids of messages to everybody. Of these
// it reads only the latest, so that many cost little.
func (t *table) Listen(receive func(body string)) (driver.Subscription, error) {
	var seen []int64 // ids that the last call has found
	var own []string // the ids among them of messages to this listener
	return roomdriver.Poll(receive, t.cfg.poll, func(ctx context.Context, address string) (bodies []string, err error) {
		err = t.with(ctx, func(ctx context.Context, conn *sql.Conn) error {
			if len(own) > 0 {
				if _, err := conn.ExecContext(ctx, `DELETE FROM `+t.cfg.messages()+` WHERE id IN (`+strings.Join(own, ", ")+`)`); err != nil {
					return err
				}
			}
			rows, err := conn.QueryContext(ctx, fmt.Sprintf(`SELECT id, address = %s, message FROM %s
				WHERE address = %s OR address = %s AND sent > %s - %d ORDER BY id`, hex(address), t.cfg.messages(),
				hex(address), hex(roomdriver.Everybody), clock, (t.cfg.poll+late).Microseconds()))
			if err != nil {
				return err
			}
			defer rows.Close()
			before := seen
			seen, own = nil, nil
			for rows.Next() {
				var id int64
				var mine bool
				var body string
				if err := rows.Scan(&id, &mine, &body); err != nil {
					return err
				}
				if mine {
					own = append(own, fmt.Sprint(id))
				}
				if seen = append(seen, id); !slices.Contains(before, id) {
					bodies = append(bodies, body)
				}
			}
			return rows.Err()
		})
		if err != nil {
			timing.Sleep(ctx, offline)
		}
		return bodies, err
	}), nil
}

// Close implements [roomdriver.Table].
func (t *table) Close() error {
	t.close()
	if !t.owned {
		return nil
	}
	return t.db.Close()
}
