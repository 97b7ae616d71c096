package postgresdriver

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// version is that of the table, which its comment tells. The records in it have one of
// their own.
const version = "leasehold 1"

// SQL returns what creates the table that the options name, and its schema if they
// name one, for those who migrate by hand. Executed again it changes nothing.
//
// A row is a lock: its name, what is known of it, in an encoding that package roomdriver
// documents, and when the row may be deleted, in milliseconds since 1970. Pages are
// filled by half and no column that changes has an index, so that updates stay in their
// page (HOT).
func SQL(opts ...Option) string {
	o, err := newOptions(opts)
	if err != nil {
		return fmt.Sprintf("-- %s\n", err)
	}
	text := o.createTable()
	if o.schema != "" {
		text = o.createSchema() + text
	}
	return text
}

func (o options) createSchema() string {
	return fmt.Sprintf("CREATE SCHEMA IF NOT EXISTS %s;\n", pgx.Identifier{o.schema}.Sanitize())
}

func (o options) createTable() string {
	return strings.NewReplacer("TABLE_NAME", o.name(), "VERSION", version).Replace(`CREATE TABLE IF NOT EXISTS TABLE_NAME (
	key    text COLLATE "C" PRIMARY KEY,
	record bytea NOT NULL,
	ends   bigint NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE TABLE_NAME IS 'VERSION: locks';
`)
}

// create makes the table. Processes that do so at the same time come one after the
// other: IF NOT EXISTS alone fails for one of them. A schema that is there needs no right
// to create schemas.
func (t *table) create(ctx context.Context, conn *pgxpool.Conn) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, t.cfg.lockID("create", "")); err != nil {
			return err
		}
		text := t.cfg.createTable()
		if t.cfg.schema != "" {
			var there bool
			if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, t.cfg.schema).Scan(&there); err != nil {
				return err
			}
			if !there {
				text = t.cfg.createSchema() + text
			}
		}
		for statement := range strings.SplitSeq(strings.TrimSuffix(text, ";\n"), ";\n") {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}
