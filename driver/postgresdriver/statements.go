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
	enter, raise, raised, count, omit, push                                string
}

// The clock is read by a statement of its own after the row was locked: one statement
// would read it before.
const (
	begin = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`
	limit = `SELECT set_config('statement_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $1, true),
		set_config('lock_timeout', $2, true)`
	hurry = `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true)`
	// enter locks the key if it has no row, and only then lets a row be inserted: a try at a lock
	// that is held does not wait for a transaction.
	enter = hurry + `, set_config('leasehold.entered', CASE WHEN NOT EXISTS (SELECT FROM TABLE_NAME WHERE key = $4)
		THEN pg_advisory_xact_lock($3)::text || '1' ELSE '' END, true)`
	clock  = `SELECT ` + micros
	guard  = `SELECT pg_advisory_xact_lock(id) FROM unnest($1::bigint[]) AS id`
	notify = `SELECT pg_notify(address, body) FROM unnest($1::text[], $2::text[]) AS message (address, body)`
)

// micros is the server's clock in microseconds since 1970. The text of a timestamp depends on
// the setting DateStyle; a number does not. See [instant].
const micros = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// Parts of a statement that exchanges a record. Its condition is checked after the row was
// locked, and fails, with a text that is not a number, if the wait took too long, or if the
// lock would change hands although a transaction has a pin.
const (
	intime  = `clock_timestamp() BETWEEN $2::timestamptz AND $3::timestamptz`
	allowed = ` RETURNING CASE
		WHEN clock_timestamp() > $3::timestamptz + interval '5 s' THEN ('leasehold: too late, ' || clock_timestamp())::int
		WHEN CASE WHEN $4::bool THEN NOT ` + tryPin + ` END THEN ('leasehold: pinned, ' || clock_timestamp())::int
		ELSE (SELECT count(pg_notify(address, body))::int FROM unnest($6::text[], $7::text[]) AS message (address, body)) END AS sent`
	tryPin = `pg_try_advisory_xact_lock(hashtextextended($1::text, $5::text::regclass::oid::bigint))`
)

// sql puts the name of the table into a statement.
func (o options) sql(text string) string {
	return strings.NewReplacer("TABLE_NAME", o.name(), "SEQUENCE", literal(o.sequence()),
		"SETTING", `'leasehold.t' || pg_relation_filenode(`+literal(o.name())+`)`).Replace(text)
}

func newStatements(with func(text string) string) statements {
	lock := with(`SELECT key, record FROM TABLE_NAME WHERE key = ANY($1::text[]) ORDER BY key FOR UPDATE`)
	exchange := func(change string) string {
		return with(`WITH done AS (` + change + allowed + `)
			SELECT (SELECT max(sent) FROM done), CASE WHEN NOT EXISTS (SELECT FROM done) THEN
				(SELECT record FROM TABLE_NAME WHERE key = $1::text) END, ` + micros)
	}
	// The counter is read and increased after the conditions.
	toMint := func(change string) string {
		change = strings.ReplaceAll(change, "COUNTER", counterRow+` AS counter`)
		return with(`WITH done AS (` + change + allowed + `, t.record)
			SELECT (SELECT sent FROM done), CASE WHEN EXISTS (SELECT FROM done) THEN (SELECT record FROM done) ELSE
				(SELECT record FROM TABLE_NAME WHERE key = $1::text) END, ` + micros + `, ` + raisedLately + ` AND ` + counterRow + ` IS NOT NULL`)
	}
	minted := func(least string) string {
		return `overlay($8::bytea PLACING int8send(greatest(` + least + `::bigint, counter.ends + nextval(SEQUENCE))) FROM 10)`
	}
	return statements{
		exchangeNone: toMint(`INSERT INTO TABLE_NAME AS t (key, record, ends)
			SELECT $1::text, ` + minted("$10") + `, $9::bigint FROM COUNTER
			WHERE ` + intime + ` AND ` + raisedLately + ` AND current_setting('leasehold.entered', true) = '1'
			AND NOT EXISTS (SELECT FROM TABLE_NAME WHERE key = $1::text) ON CONFLICT (key) DO NOTHING`),
		exchangeToMint: toMint(`UPDATE TABLE_NAME AS t SET record = ` + minted("$11") + `, ends = $9::bigint FROM COUNTER
			WHERE key = $1::text AND record = $10::bytea AND ` + intime + ` AND ` + raisedLately),
		enter: with(enter), raise: with(raise), raised: with(raised), count: with(count), omit: with(omit), push: with(push),
		exchange: exchange(`UPDATE TABLE_NAME AS t SET record = $8::bytea, ends = $9::bigint
			WHERE key = $1::text AND record = $10::bytea AND ` + intime),
		exchangeForNone: exchange(`DELETE FROM TABLE_NAME AS t WHERE key = $1::text AND record = $8::bytea AND ` + intime),
		lock:            lock,
		lockMany:        lock + ` SKIP LOCKED`,
		also:            with(`SELECT key, record FROM TABLE_NAME WHERE key = $1`),
		notes:           with(`SELECT key, record FROM TABLE_NAME WHERE key = ANY($1::text[]) FOR UPDATE`),
		insert:          with(`INSERT INTO TABLE_NAME (key, record, ends) SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[])`),
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
