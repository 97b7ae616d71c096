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
// requests at the same time, and replaces the record on condition of its revision: two round
// trips and one write. If another process was faster, it begins again. A record is at most as
// large as a message of the server (max_payload, 1 MB by default), which is a queue of some 8000
// waiters; the next waiter is refused by an error that names the limit.
//
// The name of a lock is its key in the bucket, so `nats kv` shows it and the permissions of an
// account can be given by prefix: a slash becomes a dot, and any other byte than a letter, a
// digit, - and _ becomes = and two hexadecimal digits.
//
// Each record has a time to live, so the servers remove the records of free locks: an hour after
// the last token, and ten minutes later, because the clocks of servers may differ. Nothing reads
// the bucket from time to time. A list reads the records one after the other.
//
// Messages of core NATS wake waiters, on the subjects leasehold.BUCKET.*. They are lost if the
// connection is away, and then waiters ask twice a second.
//
// # Which reads are used
//
// The leader of the stream answers all reads. Direct gets, which replicas answer from what they
// have, are not used: a list or a refusal would be out of date. A leader that was cut off from
// its cluster answers for some seconds with old records. That is harmless to a grant, because the
// present leader decides about the write by its revision; but a refusal, or a list, can be out of
// date for that long.
//
// # The clock
//
// The clock is that of the server that leads the stream (the time of its stream information). A
// release or a renewal never shows an earlier time than the last write of its record. After a
// change of the leader the clock is another server's. If that is ahead by more than the drift of
// a lease (one percent of its TTL), leases granted before may end early, and two clients may
// hold one lock until the first renews. So the servers need synchronised clocks; Check compares
// the leader's with that of its caller.
//
// # Requirements on the servers
//
// Servers of version 2.11 or later, and a bucket with message TTLs ([WithCreate], or
// `nats kv add leasehold --replicas=3 --marker-ttl=1h`), file storage and no other limits. Three
// replicas survive the loss of one. A server acknowledges a write before it syncs it to its disk
// (sync_interval, two minutes by default): a server process may be killed without a loss, but a power
// failure of a single server, or of most replicas at once, forgets the last locks unless
// sync_interval is "always". A lock that was lost may be granted again while its holder still works; the
// token distinguishes the two, since tokens begin with the clock in microseconds.
//
// # Rights
//
// The user may publish to $KV.BUCKET.>, $JS.API.STREAM.INFO.KV_BUCKET,
// $JS.API.STREAM.MSG.GET.KV_BUCKET and leasehold.BUCKET.>, and subscribe to leasehold.BUCKET.>
// and _INBOX.>. To create the bucket it also publishes to $JS.API.STREAM.CREATE.KV_BUCKET.
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
// A call that a connection loss cuts off returns at once; its outcome is unknown if it had sent a write.
// Close closes the connection that the driver has made, but not the connection that was given to [New].
type Driver struct {
	*rooms
	table *bucket
}

// rooms is the store over the table.
type rooms = roomdriver.Driver

var _ driver.Checker = (*Driver)(nil)

// New returns a store on a connection, which may be reconnecting. New sends nothing. An error
// matches [driver.ErrInvalid].
//
// A connection buffers requests while it is away, unless it has [nats.ReconnectBufSize](-1).
// The store makes no request then. One that was made just before may reach the server
// later; it takes effect only if the record has not been replaced since.
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
// A user without a password is a token. The parameters are those of this package,
// create=true, replicas=3 and timeout=2s; creds, a file of credentials; with tls:// also ca, cert, key,
// server_name and skip_verify. All files are read for each connection, apart from ca. Open
// makes no connection. An error matches [driver.ErrInvalid], and contains no password.
//
// The driver's connection has no buffer for times when it is away, and asks the server twice
// during the timeout whether it is alive.
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
