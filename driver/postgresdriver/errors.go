package postgresdriver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver"
)

var (
	// errTaken: another transaction has inserted the row in the meantime.
	errTaken = errors.New("the row was inserted by another transaction")
	// errPinned: a transaction that has not ended keeps the lock from changing hands.
	errPinned = errors.New("the lock is pinned by a transaction")
	// errFull: the server's queue of notifications is full, since a listener does not
	// read.
	errFull = errors.New("the queue of notifications is full")
	// errReplica: a replica has answered a statement that only reads.
	errReplica = errors.New("the server is in recovery")
)

// lasting has the codes of refusals that time does not heal: the wrong password, a role that
// may not log in from here, a missing right, a setting that is unknown or not to be set, a
// database, a schema or a table that is not there, a table of another program.
var lasting = map[string]bool{
	"28P01": true, "28000": true, "42501": true, "42704": true, "22023": true, "55P02": true, "3D000": true,
	"3F000": true, "42P01": true, "42703": true, "42804": true, "42883": true, "42809": true,
}

// ahead is the refusal of a password that time may heal.
type ahead struct{ error }

func (a ahead) Unwrap() error { return a.error }

// unavailable returns the error of a call that certainly had no effect.
func unavailable(err error) error {
	switch {
	case err == nil, errors.Is(err, driver.ErrUnavailable):
		return err
	case permanent(err):
		return fmt.Errorf("%w: %w", driver.ErrPermanent, onOneLine(err))
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, onOneLine(err))
}

// onOneLine returns err without line breaks: pgconn writes a line for each address, and with
// sslmode=prefer each twice.
func onOneLine(err error) error {
	lines := slices.Compact(strings.Split(err.Error(), "\n\t"))
	if len(lines) == 1 {
		return err
	}
	return &flat{strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": "), err}
}

// flat is an error with another text.
type flat struct {
	text string
	error
}

func (f *flat) Error() string { return f.text }

func (f *flat) Unwrap() error { return f.error }

// permanent reports whether time heals no part of err. An attempt to connect may fail in
// several parts: one for each host, or for each address of a host.
func permanent(err error) bool {
	_, heals := parts(err)
	return err != nil && !heals
}

// parts reports whether time does not heal some part of err, and whether it heals another.
// A server without TLS counts as neither: sslmode=prefer asks it again without TLS, and the
// second answer counts. With sslmode=require there is no second answer.
func parts(err error) (lasts, heals bool) {
	switch err := err.(type) { //nolint:errorlint // this walks the tree itself
	case ahead:
		return false, true
	case *pgconn.PgError:
		return lasting[err.Code], !lasting[err.Code]
	case *tls.CertificateVerificationError:
		return true, false
	case interface{ Unwrap() []error }:
		if len(err.Unwrap()) == 0 {
			return false, true
		}
		for _, part := range err.Unwrap() {
			l, h := parts(part)
			lasts, heals = lasts || l, heals || h
		}
		return lasts, heals
	case interface{ Unwrap() error }:
		return parts(err.Unwrap())
	}
	return false, err == nil || err.Error() != "server refused TLS connection" // pgconn has no name for it
}

// hidesHosts reports whether err is of an attempt to connect that may have left hosts out:
// pgconn asks no host behind one that refuses a password, a database or a right. An attempt
// that was not made has the error of another one.
func hidesHosts(err error) bool {
	var failed *pgconn.ConnectError
	if errors.As(err, new(denied)) || !errors.As(err, &failed) {
		return false
	}
	lasts, _ := parts(err)
	return lasts && skipHost(failed.Config.Copy())
}

// skipHost takes the first host out of a configuration, and reports whether there is another.
func skipHost(cfg *pgconn.Config) bool {
	for i, next := range cfg.Fallbacks {
		if next.Host != cfg.Host || next.Port != cfg.Port {
			cfg.Host, cfg.Port, cfg.TLSConfig, cfg.Fallbacks = next.Host, next.Port, next.TLSConfig, cfg.Fallbacks[i+1:]
			return true
		}
	}
	return false
}

// beforeCommit returns the error of a statement that was sent together with a commit. Only
// an error reported by the server is certain: then it has skipped the commit. The error of
// a terminated session is not certain, nor is [pgconn.SafeToRetry], which may be true for a
// connection that was cut after the sending.
func beforeCommit(err error) error {
	var told *pgconn.PgError
	if !errors.As(err, &told) || told.SeverityUnlocalized != "ERROR" || strings.HasPrefix(told.Code, "08") {
		return err
	}
	switch told.Code {
	case "22P02":
		return fmt.Errorf("%w: %w", errPinned, unavailable(err))
	case "23505":
		return fmt.Errorf("%w: %w", errTaken, unavailable(err))
	}
	return unavailable(err)
}

// atCommit returns the error of a commit. Its outcome is unknown, except for a full queue,
// which the server detects before it commits. A commit that is acknowledged with a warning
// has not reached the synchronous replicas, because the wait for them was cancelled.
func atCommit(err error, conn *pgxpool.Conn) error {
	var told *pgconn.PgError
	if warning := warningOf(conn); err == nil && warning != "" {
		return fmt.Errorf("the server has committed with a warning: %s: %w", warning, driver.ErrNotReplicated)
	}
	if errors.As(err, &told) && told.Code == "54000" && told.SeverityUnlocalized == "ERROR" {
		return fmt.Errorf("%w: %w", errFull, unavailable(err))
	}
	return err
}

// missing reports whether there is no table, or no schema.
func missing(err error) bool {
	var told *pgconn.PgError
	return errors.As(err, &told) && (told.Code == "42P01" || told.Code == "3F000")
}

// readOnly reports whether a server is a replica that serves no locks.
func readOnly(err error) bool {
	var told *pgconn.PgError
	return errors.Is(err, errReplica) || errors.As(err, &told) && (told.Code == "25006" || told.Code == "0A000" && strings.Contains(told.Message, "recovery"))
}

// connectError returns the error of a call that got no connection.
func connectError(ctx context.Context, err error) error {
	var failed *pgconn.ConnectError
	if ctx.Err() != nil && !errors.As(err, &failed) {
		return fmt.Errorf("no connection was free, or the server did not answer in time: %w", err)
	}
	return err
}

// hints maps the code of an error to advice. TABLE is the table.
var hints = map[string]string{
	"42P01": "there is no table TABLE, or no sequence SEQUENCE: create it by the statements of `leasehold schema`, or open the store with create=true",
	"3F000": "there is no such schema: create it, or open the store with create=true",
	"42703": "the table TABLE has other columns: it is of another version, or not of leasehold; name another table",
	"42804": "the table TABLE has other columns: it is of another version, or not of leasehold; name another table",
	"42883": "the table TABLE has other columns: it is of another version, or not of leasehold; name another table",
	"42809": "TABLE is not a table, or SEQUENCE is not a sequence; name another table",
	"55000": "TABLE is not a table; name another",
	"42501": "the role lacks a right: GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE, USAGE ON SEQUENCE SEQUENCE, and USAGE on the schema",
	"25006": "this is a read-only replica: connect to the primary, or name all hosts and add target_session_attrs=read-write",
	"3D000": "there is no such database: see the path of the URL",
	"28P01": "check the user's name and password",
	"42704": "the server has no such setting: see the parameters of the URL",
	"22023": "the server refuses the value of a setting: see the parameters of the URL",
	"55P02": "a client must not change this setting: see the parameters of the URL",
	"28000": "the server does not let this user in from here: see its pg_hba.conf",
	"53300": "the server takes no more connections: raise max_connections, or use a connection pooler",
	"57P03": "the server is starting or stopping; it will serve in a while",
	"53100": "the server's disk is full",
	"55P03": "another transaction has kept the row of this lock for too long",
	"57014": "a statement took longer than the store's timeout",
	"26000": "a connection pooler breaks prepared statements: add default_query_exec_mode=exec to the URL",
	"42P05": "a connection pooler breaks prepared statements: add default_query_exec_mode=exec to the URL",
	"22021": "the database cannot keep this name: it has another encoding than UTF8",
	"22P05": "the database cannot keep this name: it has another encoding than UTF8",
}

// uncreated is the error of an attempt to create the table.
type uncreated struct{ error }

func (u uncreated) Unwrap() error { return u.error }

// explain adds advice to an error.
func explain(err error, o options) error {
	var told *pgconn.PgError
	code := ""
	if errors.As(err, &told) {
		code = told.Code
	}
	switch {
	case code == "08P01" && strings.Contains(told.Message, "prepared statement"):
		code = "26000"
	case readOnly(err):
		code = "25006"
	}
	hint := hints[code]
	switch {
	case code != "42501":
	case told.SeverityUnlocalized == "FATAL":
		hint = "the role may not CONNECT to this database, or may not change a setting: see the parameters of the URL"
	case errors.As(err, new(uncreated)):
		hint = "to create the table, or the schema, the role needs CREATE on the schema, or on the database; or another role must create it by the statements of `leasehold schema`"
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.NewReplacer("TABLE", o.name(), "SEQUENCE SEQUENCE", "SEQUENCE "+o.sequence(), "SEQUENCE", o.sequence()).Replace(hint))
}

// warnings is where a connection keeps the last warning of its server.
const warnings = "leasehold.warning"

// noteWarnings makes connections keep warnings.
func noteWarnings(cfg *pgconn.Config) {
	before := cfg.OnNotice
	cfg.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if notice.SeverityUnlocalized == "WARNING" {
			conn.CustomData()[warnings] = notice.Message
		}
		if before != nil {
			before(conn, notice)
		}
	}
}

func forgetWarning(conn *pgxpool.Conn) { delete(conn.Conn().PgConn().CustomData(), warnings) }

func warningOf(conn *pgxpool.Conn) string {
	text, _ := conn.Conn().PgConn().CustomData()[warnings].(string)
	return text
}
