package mysqldriver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/leasehold-go/leasehold/internal/storeurl"
	"github.com/leasehold-go/leasehold/internal/urlquery"
)

// Option changes a default of a store.
type Option func(*options)

type options struct {
	table   string
	create  bool
	timeout time.Duration
	poll    time.Duration
}

// Defaults of options.
const (
	defaultTable   = "leasehold"
	defaultTimeout = 2 * time.Second
	defaultPoll    = 25 * time.Millisecond
)

// WithTable sets the name of the table, "leasehold" by default, of at most 56 characters of
// ASCII. Locks of
// different tables are independent. The messages are in a second table, TABLE_message.
func WithTable(name string) Option { return func(o *options) { o.table = name } }

// WithCreate makes a call that finds no table create it. Without it such a call fails at once with
// driver.ErrPermanent: run the migration before the programs that need it. See [SQL].
func WithCreate() Option { return func(o *options) { o.create = true } }

// WithTimeout bounds one statement, connecting included, and the repetitions of one change: 100 ms
// to a minute, 2 s by default. If the time passes after a change was sent, the outcome is unknown.
// A change that reaches the server later than this after the record was read has no effect.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithPoll sets how often a process looks for messages, once it has waited for a lock or held one
// for a second: 1 ms to 10 s, 25 ms by default. A hand-over to another process takes half of that
// longer, on average. A look reads two places of an index.
func WithPoll(d time.Duration) Option { return func(o *options) { o.poll = d } }

func newOptions(opts []Option) (options, error) {
	o := options{table: defaultTable, timeout: defaultTimeout, poll: defaultPoll}
	for _, opt := range opts {
		opt(&o)
	}
	const most = 64 - len(messageSuffix)
	// The server reads a character outside ASCII by the character set of the connection.
	odd := func(r rune) bool { return r < ' ' || r > '~' || r == ';' }
	switch n := len(o.table); {
	case n == 0 || n > most || strings.ContainsFunc(o.table, odd) || strings.HasSuffix(o.table, " "):
		return o, fmt.Errorf("table name %q is not between 1 and %d characters of ASCII, without semicolons; no space at its end", o.table, most)
	case o.timeout < 100*time.Millisecond || o.timeout > time.Minute:
		return o, fmt.Errorf("timeout %v is not between 100ms and 1m", o.timeout)
	case o.poll < time.Millisecond || o.poll > 10*time.Second:
		return o, fmt.Errorf("poll %v is not between 1ms and 10s", o.poll)
	}
	return o, nil
}

const messageSuffix = "_message"

// name returns the table in SQL.
func (o options) name() string { return quoted(o.table) }

// messages returns the table of messages in SQL.
func (o options) messages() string { return quoted(o.table + messageSuffix) }

func quoted(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// SQL returns the statements that create the tables of the options, for a migration tool. Each ends
// with a semicolon and a newline. Running them again has no effect. The user needs CREATE on the
// database. If an option is refused, SQL returns a comment with the reason.
//
// A row is a lock: its name, its record, in an encoding that package roomdriver documents, when the
// row may be deleted, in milliseconds since 1970, and when it was written, in microseconds; that
// number rises with every change.
func SQL(opts ...Option) string {
	o, err := newOptions(opts)
	if err != nil {
		return fmt.Sprintf("-- %s\n", err)
	}
	return o.schemaSQL()
}

// SQL returns the statements of [SQL] for the tables of this store. It makes no connection.
func (d *Driver) SQL() string { return d.table.cfg.schemaSQL() }

func (o options) schemaSQL() string {
	return `CREATE TABLE IF NOT EXISTS ` + o.name() + ` (
	name    VARBINARY(540) NOT NULL PRIMARY KEY,
	record  MEDIUMBLOB NOT NULL,
	ends    BIGINT NOT NULL,
	written BIGINT NOT NULL,
	KEY (ends)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC COMMENT = '` + version + `: locks';
CREATE TABLE IF NOT EXISTS ` + o.messages() + ` (
	id      BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	address VARBINARY(64) NOT NULL,
	message BLOB NOT NULL,
	sent    BIGINT NOT NULL,
	KEY (address, sent),
	KEY (sent)
) ENGINE = InnoDB COMMENT = '` + version + `: messages';
`
}

// version is the version of the tables, stored in their comments.
const version = "leasehold 1"

// parse returns the configuration of the connections that a URL describes, and the options of
// this package in it.
func parse(rawURL string) (*mysql.Config, []Option, error) {
	scheme, _, _ := strings.Cut(rawURL, "://")
	if scheme != "mysql" && scheme != "mariadb" {
		return nil, nil, errors.New("want a URL such as mysql://user:password@host:3306/database")
	}
	if err := storeurl.Check(rawURL); err != nil {
		return nil, nil, err
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, nil, errors.New("not a URL; " + storeurl.Encode) // err quotes the part at fault
	}
	q := urlquery.Of(u)
	cfg := mysql.NewConfig()
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	if cfg.Net, cfg.Addr = "unix", q.Text("socket", ""); cfg.Addr == "" {
		host, port := u.Hostname(), u.Port()
		if port == "" {
			port = "3306"
		}
		if host == "" {
			return nil, nil, errors.New("no host")
		}
		cfg.Net, cfg.Addr = "tcp", net.JoinHostPort(host, port)
	}
	if cfg.DBName == "" {
		return nil, nil, errors.New("no database; want a URL such as mysql://user:password@host:3306/database")
	}
	if cfg.TLSConfig = q.Text("tls", "false"); cfg.TLSConfig == "true" {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if err := q.TLS(cfg.TLS, "tls=true"); err != nil {
		return nil, nil, err
	}
	opts := []Option{
		WithTable(q.Text("table", defaultTable)), WithTimeout(q.Duration("timeout", defaultTimeout)), WithPoll(q.Duration("poll", defaultPoll)),
	}
	if q.Bool("create") {
		opts = append(opts, WithCreate())
	}
	return cfg, opts, q.Rest()
}
