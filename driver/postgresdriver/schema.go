package postgresdriver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// version is the version of the table, stored in its comment. The records in it have a
// version of their own.
const version = "leasehold 1"

// SQL returns the statements that create the table of the options, and its schema if it is
// named and missing, for a migration tool. Each ends with a semicolon and a newline. Running
// them again as the same role has no effect. The role needs CREATE on the schema, or on the
// database to create the schema. If an option is refused, SQL returns a comment with the
// reason.
//
// A row is a lock: its name, its record, in an encoding that package roomdriver documents,
// and when the row may be deleted, in milliseconds since 1970. The sequence counts the tokens of
// all locks, together with a row of its own. Pages are filled by half
// and no column that changes has an index, so that updates stay in their page (HOT).
func SQL(opts ...Option) string {
	o, err := newOptions(opts)
	if err != nil {
		return fmt.Sprintf("-- %s\n", err)
	}
	return o.schemaSQL()
}

// SQL returns the statements of [SQL] for the table of this store, also if it exists. It makes
// no connection.
func (d *Driver) SQL() string { return d.table.cfg.schemaSQL() }

// schemaSQL creates the schema only if it is missing: CREATE SCHEMA IF NOT EXISTS would need
// the right to create schemas even if it exists.
func (o options) schemaSQL() string {
	text := ""
	if o.schema != "" {
		create := fmt.Sprintf("BEGIN IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s) THEN CREATE SCHEMA %s; END IF; END",
			literal(o.schema), pgx.Identifier{o.schema}.Sanitize())
		text = "DO " + literal(create) + ";\n"
	}
	return text + strings.NewReplacer("TABLE_NAME", o.name(), "VERSION", version, "SEQUENCE_NAME", o.sequence()).Replace(`CREATE TABLE IF NOT EXISTS TABLE_NAME (
	key    text COLLATE "C" PRIMARY KEY,
	record bytea NOT NULL,
	ends   bigint NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE TABLE_NAME IS 'VERSION: locks';
CREATE SEQUENCE IF NOT EXISTS SEQUENCE_NAME OWNED BY TABLE_NAME.key;
`)
}

// creating bounds the creation of the table. It is long, since the server may be busy, and
// the store cannot work without the table.
const creating = 30 * time.Second

// creations bounds how often one call creates the table.
const creations = 3

// maker creates the table. The creation is not part of the call that needs it: whatever the
// calls and their time limits, one connection works until it is done. Calls that each began
// again would delay each other.
type maker struct {
	mu    sync.Mutex
	under *making // nil if no creation is under way
}

// making is one attempt.
type making struct {
	done chan struct{}
	err  error // after done is closed
}

// made creates the table, or waits for the attempt that is under way.
func (m *maker) made(ctx context.Context, t *table) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.timeout)
	defer cancel()
	m.mu.Lock()
	now := m.under
	if now == nil {
		now = &making{done: make(chan struct{})}
		m.under = now
		go m.make(t, now)
	}
	m.mu.Unlock()
	select {
	case <-now.done:
		return now.err
	case <-ctx.Done():
		return fmt.Errorf("the table is still being created: %w", ctx.Err())
	}
}

func (m *maker) make(t *table, now *making) {
	defer close(now.done)
	now.err = t.create()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.under = nil
}

// create makes the table. Processes that do so at the same time take turns: IF NOT EXISTS
// alone fails for one of them. An existing table needs no right to create tables.
func (t *table) create() error {
	ctx, cancel := context.WithTimeout(t.ctx, creating)
	defer cancel()
	conn, err := t.pool.take(ctx, ordinary)
	if err != nil {
		return connectError(ctx, err)
	}
	defer func() { t.pool.give(conn, nil) }()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, limit, milliseconds(creating), milliseconds(creating)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, t.cfg.lockID("create", "")); err != nil {
			return err
		}
		var exists bool
		if err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL`,
			t.cfg.name(), t.cfg.sequence()).Scan(&exists); err != nil || exists {
			return err
		}
		for statement := range strings.SplitSeq(strings.TrimSuffix(t.cfg.schemaSQL(), ";\n"), ";\n") {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}
