package redisdriver

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/interrupt"
)

// behindSentinels is what a failover client of go-redis calls its server.
const behindSentinels = "FailoverClient"

// sentinels are the addresses of sentinels, what they call the primary, and how
// they are connected to.
type sentinels struct {
	addrs   []string
	primary string
	options redis.Options // but for the address
}

// search is one for the primary. It is told by the context with which go-redis dials
// the primary; sentinels it dials with contexts of its own.
type search struct{ named bool } // the sentinels have named one

type searchKey struct{}

// sorted notes in conns the connections to sentinels.
func sorted(conns *interrupt.Conns, dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if s, ok := ctx.Value(searchKey{}).(*search); ok {
			s.named = true
			return dial(ctx, network, addr)
		}
		nc, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return conns.Add(ctx, nc), nil
	}
}

// cutting closes the connections to sentinels when none of them has named a primary:
// go-redis is done with them, and forgets those whose greeting has failed.
func cutting(conns *interrupt.Conns, dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		s := new(search)
		nc, err := dial(context.WithValue(ctx, searchKey{}, s), network, addr)
		if err != nil && !s.named {
			conns.Cut()
		}
		return nc, err
	}
}

// How often the sentinels are asked who the primary is. The question costs a
// connection to it, and with TLS that is dear.
const (
	askSentinels    = 2 * time.Second
	askSentinelsTLS = 10 * time.Second
)

// lookout cuts the connections to a primary that was replaced. One that was
// replaced by command, or that hung meanwhile, takes itself for the primary for
// some ten seconds still: it would grant what its successor has granted already,
// and miss what its successor was told.
type lookout struct {
	dial  dialFunc
	conns *interrupt.Conns
	stop  context.CancelFunc
	done  chan struct{}
}

// newLookout starts one, if a client with these options knows sentinels.
func newLookout(opt *redis.Options, conns *interrupt.Conns) *lookout {
	if opt.Addr != behindSentinels {
		return nil
	}
	every := askSentinels
	if opt.TLSConfig != nil {
		every = askSentinelsTLS
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &lookout{dial: opt.Dialer, conns: conns, stop: cancel, done: make(chan struct{})}
	go l.run(ctx, every)
	return l
}

func (l *lookout) run(ctx context.Context, every time.Duration) {
	defer close(l.done)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.look(ctx, every)
		}
	}
}

// look asks the sentinels through the dialer, which tells nothing but connects.
func (l *lookout) look(ctx context.Context, within time.Duration) {
	if l.conns.Len() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	nc, err := l.dial(ctx, "tcp", behindSentinels)
	if err != nil {
		return // nobody knows better: go on with what there is
	}
	l.conns.KeepOnly(nc.RemoteAddr())
	_ = nc.Close()
}

// end ends the lookout, if there is one, and waits for it.
func (l *lookout) end() {
	if l != nil {
		l.stop()
		<-l.done
	}
}
