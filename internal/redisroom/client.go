package redisroom

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Client is the part of a Redis client library that the scripts need. A command is a slice of
// words whose fourth is the first key, as in EVALSHA; a cluster routes by it.
//
// A reply is nil, an int64, a string, a []any of replies, or, inside a slice, a
// [ReplyError]; a map is a slice of names and values. An error reply of the server is a
// [ReplyError] error. Every other error is the library's own; it wraps
// [driver.ErrUnavailable] if the command certainly was not sent, and [driver.ErrClosed]
// after Close.
//
// Implementations retry nothing but redirections of a cluster. They return when ctx ends,
// also on a silent connection, and within their configured timeout if ctx has no earlier
// deadline. They are safe for concurrent use.
type Client interface {
	// Do runs one command. After an error cmd may still be read, otherwise not: the
	// caller uses its memory again.
	Do(ctx context.Context, cmd []string) (any, error)
	// Run runs commands in pipelines, one per node, and calls each for every command,
	// one call at a time, as the replies of a node arrive. It returns after the last
	// call. If acks are wanted, a WAIT on the same connection follows the commands of
	// each node.
	Run(ctx context.Context, cmds [][]string, want Acks, each func(i int, a Answer))
	// Listen subscribes to channels, all on one connection, calls up when the
	// server has confirmed each of them, and message for every message, one at a
	// time. The first channel is the caller's own; concurrent calls, which may share
	// the connection, may listen to the other channels too. Listen returns when the
	// connection is lost or ctx is done, and unsubscribes channels that no concurrent
	// call uses. It detects a silent connection itself. A cluster routes by the first
	// channel.
	Listen(ctx context.Context, channels []string, up func(), message func(string)) error
	// Nodes returns the addresses of the primaries, in an order that does not change.
	// Behind sentinels the only primary has the name Primary.
	Nodes(ctx context.Context) ([]string, error)
	// Sentinels names the sentinels by their addresses, as far as they are
	// known, and the primary as they call it.
	Sentinels() (addrs []string, primary string)
	// Ask runs one command of any form on a node or a sentinel.
	Ask(ctx context.Context, node string, words ...string) (any, error)
	// Visit runs one command over a new connection to the server at addr, for example
	// a replica. If addr is empty, it uses the server to which the client connects.
	Visit(ctx context.Context, addr string, words ...string) (any, error)
	// Connect begins to connect to the server of a slot, unless it is connected,
	// and returns at once. It does not insist.
	Connect(slot int)
	// Cut closes all present connections. Requests under way fail; new connections are
	// made when needed.
	Cut()
	// Cluster reports whether commands are routed by key.
	Cluster() bool
	// Changes counts the connections that were made and the redirections that
	// were followed. While it stays the same, and there is no cluster, the server
	// is that of before, though it may have been a replica in between.
	Changes() uint64
	// Close closes all connections and waits for the client's goroutines.
	Close() error
}

// Pace keeps attempts apart. It is safe for concurrent use.
type Pace struct{ last atomic.Int64 }

// pace is the least time between two attempts.
const pace = int64(time.Second)

// Due reports whether an attempt may be made now; if so it is counted.
func (p *Pace) Due() bool {
	now, last := time.Now().UnixNano(), p.last.Load()
	return (now-last >= pace || now < last) && p.last.CompareAndSwap(last, now)
}

// MaxSilence bounds how long a subscription waits for the answer to a ping, also if a
// request may take longer: a new subscription costs little.
const MaxSilence = 2 * time.Second

// Primary is the name of the node behind sentinels.
const Primary = "primary"

// Answer is the outcome of one command of several.
type Answer struct {
	Reply any
	Err   error
	// Acked is how many replicas acknowledged the writes; AckErr is why that is unknown.
	Acked  int
	AckErr error
}

// ReplyError is an error reply of the server.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// IsReply reports whether the server answered with an error.
func IsReply(err error) bool {
	var reply ReplyError
	return errors.As(err, &reply)
}

// IsUnsent reports whether a request certainly had no connection. Another client, or another try,
// may have one.
func IsUnsent(err error) bool {
	return errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrClosed)
}

// ErrClosed is the error of a request after Close.
var ErrClosed = fmt.Errorf("%w: %w", driver.ErrClosed, driver.ErrUnavailable)

// Redirection returns the address to which a cluster's error redirects a command, and
// whether only this once. addr is empty for other errors.
func Redirection(err error) (addr string, asking bool) {
	var reply ReplyError
	if !errors.As(err, &reply) {
		return "", false
	}
	words := strings.Fields(string(reply))
	if len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK" {
		return "", false
	}
	return words[2], words[0] == "ASK"
}
