package etcddriver

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// Driver is a store in etcd, with every kind of lock. It is made by [New] or [Open], and is safe
// for concurrent use. It has the methods of [driver.Driver], [driver.Watcher], [driver.Glancer],
// [driver.Breaker], [driver.Checker] and [driver.Marker].
type Driver struct {
	*rooms
	table *table
}

// rooms is the store over the table.
type rooms = roomdriver.Driver

// New returns a store that uses a client, which must outlive it: Close does not close the client.
// Set DialKeepAliveTime and DialKeepAliveTimeout of the client: otherwise its watches do not notice a
// member that hangs. New makes no request. An error matches [driver.ErrInvalid].
func New(client *clientv3.Client, opts ...Option) (*Driver, error) {
	if client == nil {
		return nil, fmt.Errorf("etcddriver: no client: %w", driver.ErrInvalid)
	}
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("etcddriver: %w: %w", err, driver.ErrInvalid)
	}
	return open(newLink(client, clientv3.Config{}), o), nil
}

func open(l *link, o options) *Driver {
	t := &table{options: o, link: l}
	t.epoch.Store(new(epoch))
	return &Driver{rooms: roomdriver.New(t, roomdriver.WithMargin(margin), roomdriver.WithMemory(0)), table: t}
}

// Open returns a store in the cluster that a URL names:
//
//	etcd://user:password@h1:2379,h2:2379,h3:2379/prefix?timeout=2s
//	etcds://h1,h2,h3?ca=ca.pem&cert=client.pem&key=client-key.pem
//
// etcds connects by TLS. The port is 2379 by default. The path, without its first slash and
// with a slash at the end, is the beginning of all keys; the parameter prefix sets that beginning
// unchanged ([WithPrefix]). Further parameters: timeout ([WithTimeout]);
// with etcds also ca, cert and key (files), server-name, and skip-verify=true.
//
// Open makes no connection. An error matches [driver.ErrInvalid], and contains no password.
func Open(url string, opts ...Option) (*Driver, error) {
	cfg, own, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("etcddriver: %w", storeurl.Invalid(url, err))
	}
	o, err := newOptions(append(own, opts...))
	if err != nil {
		return nil, fmt.Errorf("etcddriver: %w", storeurl.Invalid(url, err))
	}
	cfg.DialTimeout = min(o.timeout, 2*time.Second) // a login ignores the context of its call
	cfg.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(noteReason)}
	return open(newLink(nil, cfg), o), nil
}

// link has a client. A client with a password connects when it is made, so a call makes it.
type link struct {
	cfg    clientv3.Config
	turn   chan struct{} // holds one element while client is in use
	client *clientv3.Client
	own    bool // the link has made the client, or makes it
	closed bool
}

func newLink(client *clientv3.Client, cfg clientv3.Config) *link {
	return &link{cfg: cfg, turn: make(chan struct{}, 1), client: client, own: client == nil}
}

func (l *link) connect(ctx context.Context) (client *clientv3.Client, err error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.closed {
		return nil, driver.ErrClosed
	}
	if l.client == nil {
		l.client, err = clientv3.New(l.cfg)
	}
	return l.client, err
}

// close closes the client if it is the link's own.
func (l *link) close() error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.closed = true
	if !l.own || l.client == nil {
		return nil
	}
	return l.client.Close()
}
