package redisdriver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/interrupt"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// behindSentinels is the address that go-redis gives to the server of a failover client.
const behindSentinels = "FailoverClient"

// sentinels are the addresses of sentinels, their name of the primary, and the options of
// a connection to them.
type sentinels struct {
	addrs   []string
	primary string
	options redis.Options // but for the address
}

// search is one search for the primary. It is found in the context with which go-redis
// dials the primary; go-redis dials sentinels with contexts of its own.
type search struct{ named bool } // the sentinels have named one

type searchKey struct{}

// trackSentinels returns a dialer that records connections to sentinels in conns.
func trackSentinels(conns *interrupt.Conns, dial, dialSentinel dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if s, ok := ctx.Value(searchKey{}).(*search); ok {
			s.named = true
			nc, err := dial(ctx, network, addr)
			return nc, redisroom.PrimaryError(addr, err)
		}
		nc, err := dialSentinel(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return conns.Add(ctx, nc), nil
	}
}

// cutAfterSearch returns a dialer that closes the connections to sentinels after a search
// that found no primary: go-redis no longer uses them, and forgets connections whose
// greeting failed. A connection made while another search ran may belong to that search, and
// is closed after it.
func cutAfterSearch(conns *interrupt.Conns, dial dialFunc) dialFunc {
	var mu sync.Mutex
	var postponed uint64                // up to which connections are to be closed when no search needs them
	running := make(map[*search]uint64) // how many connections had been made when each began
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		s := new(search)
		mu.Lock()
		running[s] = conns.Made()
		mu.Unlock()
		nc, err := dial(context.WithValue(ctx, searchKey{}, s), network, addr)
		mu.Lock()
		defer mu.Unlock()
		delete(running, s)
		if err != nil && !s.named {
			postponed = conns.Made()
		}
		upTo := postponed
		for _, began := range running {
			upTo = min(upTo, began)
		}
		conns.CutUpTo(upTo)
		return nc, err
	}
}

// errNoPrimary is the error of a search if a sentinel answered that it has no primary of
// that name.
var errNoPrimary = fmt.Errorf("the sentinels have no primary of that name (see master=): %w", driver.ErrPermanent)

// shareRefusals returns a dialer for a primary behind sentinels. A search fails with the
// refusal that it or a simultaneous search received: go-redis runs one search after another,
// so a later search may time out first.
func shareRefusals(dial dialFunc) dialFunc {
	var mu sync.Mutex
	var refusals int
	var last error
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		before := refusals
		mu.Unlock()
		nc, err := dial(ctx, network, addr)
		mu.Lock()
		defer mu.Unlock()
		if refused := refusal(err); refused != nil {
			refusals, last = refusals+1, refused
		}
		if err != nil && refusals > before {
			err = last
		}
		return nc, err
	}
}

// refusal returns the reason why sentinels, or the primary, refuse a search: errNoPrimary if
// one sentinel has no primary of the name, and another refusal only if all have refused. It
// returns nil if one of them did not answer.
func refusal(err error) error {
	var reply redis.Error
	var untrusted *tls.CertificateVerificationError
	var several interface{ Unwrap() []error }
	switch {
	case errors.Is(err, redis.Nil):
		return errNoPrimary
	case errors.As(err, &several):
		var refused error
		for _, one := range several.Unwrap() {
			if refused = refusal(one); refused == nil {
				return nil
			}
		}
		return refused
	case errors.As(err, &reply):
		return redisroom.ReplyError(reply.Error())
	case errors.As(err, &untrusted):
		return err
	}
	return nil
}

// How often the sentinels are asked for the primary. Each question needs a new connection,
// which is expensive with TLS.
const (
	askSentinels    = 2 * time.Second
	askSentinelsTLS = 10 * time.Second
)

// watchPrimary cuts the connections to a primary that was replaced, until ctx ends. A primary that
// was replaced by command, or that hung in the meantime, still acts as primary for some ten
// seconds. It would grant locks that its successor has granted. dial asks the sentinels.
func (c *adapter) watchPrimary(ctx context.Context, dial dialFunc, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.look(ctx, dial, every)
		}
	}
}

// look asks the sentinels through the dialer, which only connects.
func (c *adapter) look(ctx context.Context, dial dialFunc, within time.Duration) {
	if c.conns.Len() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	nc, err := dial(ctx, "tcp", behindSentinels)
	if err != nil {
		return // without an answer keep the present connections
	}
	c.conns.KeepOnly(nc.RemoteAddr())
	_ = nc.Close()
}
