package mysqldriver

import (
	"crypto/tls"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/leasehold-go/leasehold/driver"
)

var (
	// errReadOnly: a replica has answered a statement that only reads.
	errReadOnly = errors.New("the server is read-only")
	// errNoCommit: statements of the application's pool are no transactions of their own.
	errNoCommit = errors.New("autocommit is off")
)

// Codes of errors that the package treats in a special way.
const (
	noTable    = 1146
	duplicate  = 1062
	deadlock   = 1213 // the transaction, which is the statement, was rolled back
	changed    = 1020 // the same, of MariaDB with innodb_snapshot_isolation
	optionOnly = 1290 // refused because of --read-only, or another option
)

// refusals are the codes of errors after which the table is certainly unchanged, since the
// server has not executed it or has undone it, with advice. All other codes may be of a commit.
var refusals = map[uint16]string{
	1040:       "the server takes no more connections: raise max_connections",
	1203:       "the user has too many connections: raise max_user_connections",
	1226:       "the user is at a limit of its account: see GRANT … WITH MAX_USER_CONNECTIONS",
	1205:       "another transaction, or a lock on the table, has kept the row of this lock for too long",
	1114:       "the table, or the server's disk, is full",
	1021:       "the server's disk is full",
	1153:       "the record of this lock is too long: raise max_allowed_packet",
	1047:       "the node is not in the majority of its Galera cluster",
	1836:       readOnly,
	optionOnly: readOnly,
	1792:       readOnly,
	duplicate:  "",
	deadlock:   "",
	changed:    "",
}

// lasting are further refusals, which time does not heal.
var lasting = map[uint16]string{
	1045:    "check the user's name and password",
	1698:    "check the user's name and password",
	1130:    "the server does not let this host in: see the hosts of the user's account",
	1044:    grant,
	1142:    grant,
	1143:    grant,
	1227:    grant,
	1370:    grant,
	1049:    "there is no such database: see the path of the URL",
	1046:    "name a database: in the path of the URL, or of the pool's DSN",
	noTable: "create the table by the statements of `leasehold schema`, or open the store with create=true",
	1054:    "TABLE has other columns: it is of another version, or not of leasehold; name another table",
	1347:    "TABLE is not a table; name another",
	1064:    "the server does not know this SQL: it is not MySQL 8 or later, or MariaDB 10.6 or later",
	1193:    "the server does not know this setting: it is not MySQL 8 or later, or MariaDB 10.6 or later",
	1251:    "the user's account has a way to authenticate that the client does not support",
	1129:    "the server has blocked this host after failed connections: execute FLUSH HOSTS there",
	1665:    "binlog_format=STATEMENT goes only with REPEATABLE READ: set binlog_format=ROW",
	1820:    expired,
	1862:    expired,
	3118:    locked,
	4151:    locked,
	3159:    "the server requires TLS: add tls=true to the URL",
}

const (
	expired  = "the password has expired: set a new one"
	locked   = "the user's account is locked: ALTER USER … ACCOUNT UNLOCK"
	readOnly = "this is a read-only replica: connect to the primary"
	grant    = "the user lacks a right: GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE and on MESSAGES, or CREATE to create them"
)

// notSent is the error of a connection, or of the creation of the table.
type notSent struct{ error }

func (n notSent) Unwrap() error { return n.error }

// code returns the code of the server's error, or 0.
func code(err error) uint16 {
	var told *mysql.MySQLError
	if errors.As(err, &told) {
		return told.Number
	}
	return 0
}

// overtaken reports whether a swap was refused because of another one: a repetition may succeed.
func overtaken(err error) bool {
	return slices.Contains([]uint16{duplicate, deadlock, changed}, code(err))
}

// outcome returns the error of a statement that changes the table. Only an error that is known to
// be a refusal is definite. ErrBadConn means that the connection was closed before the statement,
// and ErrPktTooLarge that the pool sends no packet of this length.
func (t *table) outcome(err error) error {
	_, refused := refusals[code(err)]
	_, lasts := lasting[code(err)]
	if refused || lasts || errors.As(err, new(notSent)) || errors.Is(err, sqldriver.ErrBadConn) ||
		errors.Is(err, mysql.ErrPktTooLarge) {
		return t.unavailable(err)
	}
	return err
}

// unavailable returns the error of a call that certainly had no effect, with advice.
func (t *table) unavailable(err error) error {
	if err == nil || errors.Is(err, driver.ErrUnavailable) {
		return err
	}
	advice := refusals[code(err)]
	text, permanent := lasting[code(err)]
	switch {
	case permanent:
		advice = text
	case errors.Is(err, errReadOnly):
		advice = readOnly
	case errors.Is(err, errNoCommit):
		permanent, advice = true, "remove autocommit from the DSN of the pool"
	case errors.Is(err, mysql.ErrNoTLS), errors.As(err, new(*tls.CertificateVerificationError)),
		errors.Is(err, mysql.ErrUnknownPlugin), errors.Is(err, mysql.ErrOldProtocol):
		permanent = true
	}
	if advice == readOnly { // the next call looks the name up again
		t.dropIdle()
	}
	if advice != "" {
		err = fmt.Errorf("%w (%s)", err, strings.NewReplacer("TABLE", t.cfg.name(), "MESSAGES", t.cfg.messages()).Replace(advice))
	}
	if permanent {
		return fmt.Errorf("%w: %w", driver.ErrPermanent, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}
