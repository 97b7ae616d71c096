package postgresdriver

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/storeurl"
	"github.com/leasehold-go/leasehold/internal/urlquery"
)

// Option changes a default of a store.
type Option func(*options)

type options struct {
	schema, table string
	create        bool
	timeout       time.Duration
	listen        string
	rotates       bool // the password is in a file
}

// WithSchema sets the schema of the table. By default the role's search_path finds it.
// Processes that exclude each other must use the same schema.
func WithSchema(name string) Option { return func(o *options) { o.schema = name } }

// WithTable sets the name of the table, "leasehold" by default. Locks of different tables
// are independent.
func WithTable(name string) Option { return func(o *options) { o.table = name } }

// WithCreate makes the first call that finds no table create it, and the schema if one
// is named; the creation continues for up to half a minute if the call gives up. Without
// it such a call fails at once with driver.ErrPermanent: run the migration before the
// programs that need it. See [SQL].
func WithCreate() Option { return func(o *options) { o.create = true } }

// WithTimeout bounds one transaction, connecting included: 100 ms to a minute, 2 s by
// default. A call that has waited for a connection for more than a quarter of the timeout has
// all of it from then on. The server bounds statements, waiting for the row, and idleness
// within the transaction by as much. If the timeout passes after the commit was sent, the
// outcome is unknown. A connection that is not there in time is made nevertheless, for the
// calls that follow, within ten seconds.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithListen makes a waiting or holding process listen at another address of the same
// database, a URL or a connection string. It is for a pooler in transaction mode, which delivers no
// notifications: the address is that of the server, or of a pool in session mode.
func WithListen(url string) Option { return func(o *options) { o.listen = url } }

func newOptions(opts []Option) (options, error) {
	o := options{table: "leasehold", timeout: 2 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	if err := checkName("table", o.table, 63-len(sequenceSuffix)); err != nil {
		return o, err
	}
	if o.schema != "" {
		if err := checkName("schema", o.schema, 63); err != nil {
			return o, err
		}
	}
	if o.timeout < 100*time.Millisecond || o.timeout > time.Minute {
		return o, fmt.Errorf("timeout %v is not between 100ms and 1m", o.timeout)
	}
	if o.listen != "" {
		if err := checkUser(o.listen); err != nil {
			return o, fmt.Errorf("listen: %w", err)
		}
		if _, err := pgx.ParseConfig(o.listen); err != nil {
			return o, fmt.Errorf("listen: %w", storeurl.Reason(o.listen, unquoted(err)))
		}
	}
	return o, nil
}

// checkName refuses names that PostgreSQL would cut or refuse.
func checkName(what, name string, most int) error {
	if name == "" || len(name) > most || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return fmt.Errorf("%s name %q is not between 1 and %d bytes of UTF-8", what, name, most)
	}
	return nil
}

// name returns the table in SQL.
func (o options) name() string {
	if o.schema == "" {
		return pgx.Identifier{o.table}.Sanitize()
	}
	return pgx.Identifier{o.schema, o.table}.Sanitize()
}

// broadcastChannel returns the channel that all users of the table listen to.
func (o options) broadcastChannel() string {
	return fmt.Sprintf("leasehold_all_%016x", uint64(o.lockID("everybody", ""))) //nolint:gosec // all bits count
}

// channels returns the channels of messages, and their bodies.
func (o options) channels(messages []roomdriver.Message) (channels, bodies []string) {
	channels, bodies = []string{}, []string{} // a nil one would be a NULL
	for _, m := range messages {
		if m.Address == roomdriver.Everybody {
			m.Address = o.broadcastChannel()
		}
		channels, bodies = append(channels, m.Address), append(bodies, m.Body)
	}
	return channels, bodies
}

// ownParameters are the URL parameters for this package, which the server does not have.
var ownParameters = []string{"schema", "table", "create", "timeout", "listen"}

// unquoted returns an error of pgx without the URL or connection string that it quotes.
func unquoted(err error) error {
	text := err.Error()
	if strings.Contains(text, "failed to parse as URL") {
		return errors.New("not a URL; " + storeurl.Encode) // pgx quotes the part at fault
	}
	return errors.New(strings.TrimPrefix(text[strings.LastIndex(text, "`")+1:], ": "))
}

// checkUser refuses a URL whose password contains an @: pgx takes the text after the first
// @ for the host, and would show a part of the password.
func checkUser(rawURL string) error {
	_, rest, _ := strings.Cut(rawURL, "://")
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		rest = rest[:end]
	}
	if strings.Count(rest, "@") > 1 {
		return errors.New("more than one @ before the path; " + storeurl.Encode)
	}
	return nil
}

// split takes the parameters of this package out of a URL. Several hosts may stand in
// it, which net/url does not know.
func split(rawURL string) (rest string, opts []Option, err error) {
	scheme, _, ok := strings.Cut(rawURL, "://")
	if !ok || scheme != "postgres" && scheme != "postgresql" {
		return "", nil, errors.New("want a URL such as postgres://user:password@host:5432/database")
	}
	if err := cmp.Or(storeurl.Check(rawURL), checkUser(rawURL)); err != nil {
		return "", nil, err
	}
	front, query, _ := strings.Cut(rawURL, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", nil, errors.New("the text after the question mark is not of the form name=value&name=value")
	}
	own := make(url.Values)
	for name, value := range values {
		switch {
		case strings.Contains(name, "@"): // pgx would show it
			return "", nil, errors.New("not a URL; " + storeurl.Encode)
		case slices.Contains(ownParameters, name):
			own[name] = value
			values.Del(name)
		}
	}
	q := urlquery.New(own)
	opts = []Option{
		WithSchema(q.Text("schema", "")), WithTable(q.Text("table", "leasehold")),
		WithTimeout(q.Duration("timeout", 2*time.Second)), WithListen(q.Text("listen", "")),
	}
	if q.Bool("create") {
		opts = append(opts, WithCreate())
	}
	if len(values) > 0 {
		front += "?" + strings.ReplaceAll(values.Encode(), "+", "%20") // pgx takes a plus for one
	}
	return front, opts, q.Rest()
}
