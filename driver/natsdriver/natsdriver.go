// Package natsdriver keeps locks in a key-value bucket of NATS JetStream, for programs that
// have NATS anyway. It supports every kind of lock.
//
//	nc, err := nats.Connect("nats://n1,n2,n3")
//	…
//	store, err := natsdriver.New(nc, natsdriver.WithCreate(3))
//	…
//	client, err := leasehold.New(store)
//
// # How it uses the bucket
//
// The record of a lock is the value of one key. A verb reads the record and the clock, by two
// requests at the same time, and replaces the record if its revision is still the same: two round
// trips and one write. If another process was faster, the verb begins again. A record is at most
// as large as a message of the server (max_payload, 1 MB by default), which is a queue of some
// 8000 waiters. An error that names the limit refuses the next waiter.
//
// `nats kv` shows the locks, and permissions may be limited to a prefix of their names. In the key
// of a lock ./ replaces a slash, and = with two hexadecimal digits replaces each byte that is no
// letter, digit, - or _.
//
// Each record has a time to live, so the servers remove the record of a free lock, 70 minutes
// after its last token. No process sweeps the bucket. A list reads the records one after the
// other.
//
// Messages of core NATS wake waiters, on subjects that begin with leasehold.BUCKET. While the
// connection is away they are lost; waiters ask twice a second then.
//
// # Reads
//
// The leader of the stream answers all reads. Replicas would answer direct gets from old data, so the
// store does not use them. A leader that was cut off from its cluster may answer with old records
// for some seconds. A grant is safe from that, since the present leader compares the revision. A
// refusal, or a list, can be out of date for that long.
//
// # The clock
//
// The clock is that of the server that leads the stream: the time in its stream information. A
// verb never uses an earlier time than that of the record's last write. After a change of the
// leader the clock is another server's. If that clock is ahead by more than the drift of a lease
// (one percent of its TTL), earlier leases may end too early, and two clients may hold one lock
// until the first of them renews its lease. So the servers need synchronized clocks. Check compares the clock of
// the leader with that of its caller.
//
// # Requirements on the servers
//
// The servers have version 2.11 or later. The bucket has message TTLs, a history of 1, file storage and no limits:
// [WithCreate] makes such a bucket, or `nats kv add leasehold --replicas=3 --marker-ttl=1h`. Three
// replicas survive the loss of one. A server acknowledges a write before it syncs it to its disk
// (sync_interval, two minutes by default). So a killed server loses no lock, but a power failure
// of the only server, or of most replicas at once, loses the last ones unless sync_interval is
// always. A lost lock may be granted again while its holder still works; the token distinguishes
// the two. Tokens begin with the clock in microseconds, so they rise even after a loss.
//
// # Rights
//
// The user may publish to $KV.BUCKET.>, $JS.API.STREAM.INFO.KV_BUCKET,
// $JS.API.STREAM.MSG.GET.KV_BUCKET and leasehold.BUCKET.>, and subscribe to leasehold.BUCKET.>
// and _INBOX.>. To create the bucket, the user also publishes to
// $JS.API.STREAM.CREATE.KV_BUCKET and $JS.API.INFO.
package natsdriver

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// Driver is a store in a bucket, with every kind of lock. It is made by [New] or [Open], and is
// safe for concurrent use. It has the methods of [driver.Driver], [driver.Watcher],
// [driver.Glancer], [driver.Breaker], [driver.Checker] and [driver.Marker].
//
// A call returns soon after its connection was lost. If it had sent a write, the outcome is unknown.
// Close closes the connection that the driver has made, but not the connection that was given to [New].
type Driver struct {
	*rooms
	table *bucket
}

// rooms is the store over the table.
type rooms = roomdriver.Driver

var _ driver.Checker = (*Driver)(nil)

// New returns a store on a connection, which may be reconnecting. New makes no request. An error
// matches [driver.ErrInvalid].
//
// A connection may buffer requests while it is away ([nats.ReconnectBufSize]). The store makes no
// request then. A request that was made just before may reach the server late; it takes effect only
// if the record was not replaced in between.
func New(nc *nats.Conn, opts ...Option) (*Driver, error) {
	if nc == nil {
		return nil, fmt.Errorf("natsdriver: no connection: %w", driver.ErrInvalid)
	}
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("natsdriver: %w: %w", err, driver.ErrInvalid)
	}
	return newDriver(newLink(o.timeout, nc, nil), o), nil
}

// Open returns a store in the bucket that a URL names, "leasehold" by default:
//
//	nats://user:password@h1:4222,h2,h3/bucket?create=true&replicas=3
//	tls://h1,h2,h3/bucket?ca=ca.pem&creds=app.creds
//
// A user without a password is a token. The parameters are create=true with replicas (1, 3 or 5, 1
// by default), timeout (2s), creds, which is a file of credentials, and with tls:// also ca, cert,
// key, server-name and skip-verify. All files are read for each connection, except ca. Open
// makes no connection. An error matches [driver.ErrInvalid], and contains no password.
//
// The driver's connection buffers no requests. It pings the server twice during the timeout, and
// tries another server after three pings without an answer.
func Open(url string, opts ...Option) (*Driver, error) {
	c, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("natsdriver: %w", storeurl.Invalid(url, err))
	}
	o, err := newOptions(append(c.options, opts...))
	if err != nil {
		return nil, fmt.Errorf("natsdriver: %w: %w", err, driver.ErrInvalid)
	}
	dial := func() (*nats.Conn, error) { return c.connect(o.timeout) }
	return newDriver(newLink(o.timeout, nil, dial), o), nil
}

func newDriver(l *link, o options) *Driver {
	b := &bucket{l, o}
	return &Driver{roomdriver.New(b, roomdriver.WithSweep(0)), b}
}
