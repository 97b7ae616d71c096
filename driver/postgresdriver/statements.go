package postgresdriver

import (
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// statements are the texts with the name of the table.
type statements struct {
	lock, lockMany, notes, also, insert, update, remove, read, list, sweep string
	exchangeNone, exchange, exchangeToMint, exchangeForNone                string
	look, enter, unpinned, raise, raised, count, omit, push                string
}

// The clock is read by a statement of its own after the row was locked: one statement
// would read it before.
const (
	begin = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`
	limit = `SELECT set_config('statement_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $1, true),
		set_config('lock_timeout', $2, true)`
	// look sets the limits of an exchange and looks at the record. It waits for no transaction.
	look = limits + `, false, NULL` + found
	// enter also reports whether the session may mint. If the key has no record it locks the key, and
	// only then lets a record be inserted.
	enter = limits + `, ` + raisedLately + `,
		set_config('leasehold.entered', CASE WHEN record IS NULL THEN pg_advisory_xact_lock($4)::text || '1' ELSE '' END, true)` + found
	limits = `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true), record, ` + micros
	found  = ` FROM (SELECT) AS one LEFT JOIN TABLE_NAME ON key = $3`
	clock  = `SELECT ` + micros
	guard  = `SELECT pg_advisory_xact_lock(id) FROM unnest($1::bigint[]) AS id`
	notify = `SELECT pg_notify(address, body) FROM unnest($1::text[], $2::text[]) AS message (address, body)`
)

// micros is the server's clock in microseconds since 1970. The text of a timestamp depends on
// the setting DateStyle; a number does not. See [instant].
const micros = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// Parts of a statement that exchanges a record. It returns a row if it has done so. Its condition
// is checked after the row was locked, and fails, with a text that is not a number, if the wait
// took too long, or if the lock would change hands although a transaction has a pin.
const (
	intime  = `clock_timestamp() BETWEEN $2::timestamptz AND $3::timestamptz`
	allowed = ` RETURNING CASE
		WHEN clock_timestamp() > $3::timestamptz + interval '5 s' THEN ('leasehold: too late, ' || clock_timestamp())::int
		WHEN CASE WHEN $4::bool THEN NOT ` + tryPin + ` END THEN ('leasehold: pinned, ' || clock_timestamp())::int END, ` + micros
	// The counter is read and increased after the conditions.
	minted  = `overlay($5::bytea PLACING int8send(greatest($7::bigint, counter.ends + nextval(SEQUENCE))) FROM 10)`
	counter = ` FROM ` + counterRow + ` AS counter WHERE ` + intime
)

// sql puts the name of the table into a statement.
func (o options) sql(text string) string {
	return strings.NewReplacer("TABLE_NAME", o.name(), "TABLE_ID", literal(o.name())+"::regclass::oid::bigint", "SEQUENCE", literal(o.sequence()),
		"SETTING", `'leasehold.t' || pg_relation_filenode(`+literal(o.name())+`)`).Replace(text)
}

func newStatements(with func(text string) string) statements {
	lock := with(`SELECT key, record FROM TABLE_NAME WHERE key = ANY($1::text[]) ORDER BY key FOR UPDATE`)
	return statements{
		exchangeNone: with(`INSERT INTO TABLE_NAME AS t (key, record, ends) SELECT $1::text, ` + minted + `, $6::bigint` + counter + `
			AND ` + raisedLately + ` AND current_setting('leasehold.entered', true) = '1'
			AND NOT EXISTS (SELECT FROM TABLE_NAME WHERE key = $1::text)
			ON CONFLICT (key) DO NOTHING` + allowed + `, record`),
		exchangeToMint: with(`UPDATE TABLE_NAME AS t SET record = ` + minted + `, ends = $6::bigint` + counter + `
			AND key = $1::text AND record = $8::bytea AND ` + raisedLately + allowed + `, record`),
		exchange: with(`UPDATE TABLE_NAME SET record = $5::bytea, ends = $6::bigint
			WHERE key = $1::text AND record = $7::bytea AND ` + intime + allowed),
		exchangeForNone: with(`DELETE FROM TABLE_NAME WHERE key = $1::text AND record = $5::bytea AND ` + intime + allowed),
		look:            with(look), enter: with(enter), unpinned: with(unpinned), raise: with(raise), raised: with(raised), count: with(count), omit: with(omit), push: with(push),
		lock:     lock,
		lockMany: lock + ` SKIP LOCKED`,
		also:     with(`SELECT key, record FROM TABLE_NAME WHERE key = $1`),
		notes:    with(`SELECT key, record FROM TABLE_NAME WHERE key = ANY($1::text[]) FOR UPDATE`),
		insert:   with(`INSERT INTO TABLE_NAME (key, record, ends) SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[])`),
		update: with(`UPDATE TABLE_NAME AS t SET record = n.record, ends = n.ends
			FROM unnest($1::text[], $2::bytea[], $3::bigint[]) AS n (key, record, ends) WHERE t.key = n.key`),
		remove: with(`DELETE FROM TABLE_NAME WHERE key = ANY($1::text[])`),
		read:   with(`SELECT (SELECT record FROM TABLE_NAME WHERE key = $1), ` + micros + `, pg_is_in_recovery()`),
		list: with(`SELECT key, record, ` + micros + ` FROM TABLE_NAME
			WHERE key >= $1 AND key > $2 AND starts_with(key, $1) ORDER BY key LIMIT $3`),
		sweep: with(`WITH now AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms)
			DELETE FROM TABLE_NAME WHERE ends <= (SELECT ms FROM now) AND key = ANY(ARRAY(
				SELECT key FROM TABLE_NAME WHERE ends <= (SELECT ms FROM now) LIMIT $1 FOR UPDATE SKIP LOCKED))`),
	}
}

// instant scans a time that the server sends as [micros].
type instant time.Time

// ScanInt64 implements [pgtype.Int64Scanner].
func (i *instant) ScanInt64(n pgtype.Int8) error {
	*i = instant(time.UnixMicro(n.Int64))
	return nil
}
