package redisroom

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/leasehold-go/leasehold/driver"
)

// refusals maps a server's error replies to errors. With all of them the request changed
// no data. ErrUnavailable may pass with time; ErrPermanent does not.
var refusals = []struct {
	code string // how the reply begins
	kind error
	hint string
}{
	{"LHINVALID", driver.ErrInvalid, ""},
	{"LHMISMATCH", driver.ErrMismatch, ""},
	{"LHAMNESIA", driver.ErrAmnesia, ""},
	{"LHFOREIGN", driver.ErrMismatch, "use another key or prefix"},
	{"WRONGTYPE", driver.ErrMismatch, "use another key or prefix"},
	{"NOAUTH", driver.ErrPermanent, "the server requires a password; give one with the client's options or in the URL"},
	{"Protocol error: unauthenticated", driver.ErrPermanent, "the server requires a password; give one with the client's options or in the URL"},
	{"WRONGPASS", driver.ErrPermanent, "check user name and password"},
	{"NOPERM", driver.ErrPermanent, "the user lacks a right; grant it ~prefix* &prefix* +@scripting +@read +@write +@connection +time, on a cluster +cluster|slots +cluster|shards, and, to be woken, +@pubsub"},
	{"LOADING", driver.ErrUnavailable, "the server is loading its data; it will serve in a while"},
	{"MASTERDOWN", driver.ErrUnavailable, "this is a replica that has lost its primary; connect to the primary"},
	{"READONLY", driver.ErrUnavailable, "this is a replica; connect to the primary, or use a sentinel or cluster URL"},
	{"CLUSTERDOWN", driver.ErrUnavailable, "the cluster does not serve this slot; see CLUSTER INFO"},
	{"TRYAGAIN", driver.ErrUnavailable, "the slot is being migrated; ask again"},
	{"MOVED", driver.ErrPermanent, "this is a node of a cluster; use a cluster client or URL"},
	{"ASK", driver.ErrUnavailable, "the slot is being migrated; ask again"},
	{"CROSSSLOT", driver.ErrPermanent, "the proxy in between cuts hash slots in a way of its own"},
	{"BUSY", driver.ErrUnavailable, "another script blocks the server; see SCRIPT KILL"},
	{"OOM", driver.ErrUnavailable, "the server is out of memory; raise maxmemory"},
	{"MISCONF", driver.ErrUnavailable, "the server cannot save its data and refuses writes; see its log"},
	{"NOREPLICAS", driver.ErrUnavailable, "the server has too few replicas to accept writes; see min-replicas-to-write"},
	{"max number of clients reached", driver.ErrUnavailable, "raise maxclients of the server"},
	{"invalid password", driver.ErrPermanent, "check user name and password"},
	{"DB index is out of range", driver.ErrPermanent, "the server has fewer databases"},
	{"No such master with that name", driver.ErrPermanent, "the sentinels have no primary of that name; see master="},
	{"This instance has cluster support disabled", driver.ErrPermanent, "the server is not a cluster node; use a URL without cluster"},
	{"unknown command 'SENTINEL'", driver.ErrPermanent, "the server is not a sentinel; use a redis:// or rediss:// URL"},
	{"unknown command 'sentinel'", driver.ErrPermanent, "the server is not a sentinel; use a redis:// or rediss:// URL"},
	{"unknown command", driver.ErrPermanent, unknown},
}

// unknown is the hint of a command that a server does not have, except those for its sentinels.
const unknown = "the server does not offer this command to this user"

// refusal classifies an error reply. An unknown one stays as it is: the script may have
// written something.
func refusal(err ReplyError) error {
	text := strings.TrimPrefix(string(err), "ERR ")
	for _, r := range refusals {
		if !strings.HasPrefix(text, r.code) {
			continue
		}
		if !errors.Is(r.kind, driver.ErrUnavailable) {
			text = strings.TrimSpace(strings.TrimPrefix(text, r.code))
		}
		if r.hint != "" {
			text += " (" + r.hint + ")"
		}
		return fmt.Errorf("%s: %w", text, r.kind)
	}
	switch {
	case strings.Contains(text, "OOM command not allowed"):
		return fmt.Errorf("%s (the server is out of memory; raise maxmemory): %w", text, driver.ErrUnavailable)
	case unknownToScripts(text):
		return fmt.Errorf("%s (the server does not offer a command that locks need, such as TIME): %w", text, driver.ErrPermanent)
	case strings.Contains(text, "can't run this command"), strings.Contains(text, "can't access at least one of the keys"):
		return fmt.Errorf("%s (the user lacks a right to a command or key): %w", text, driver.ErrPermanent)
	}
	return err
}

// unknownToScripts reports whether a script failed because the server lacks a command. The
// error of Redis is "Unknown Redis command called from script"; Valkey's omits the name.
func unknownToScripts(text string) bool {
	text = strings.ToLower(text)
	return strings.HasPrefix(text, "unknown redis command called from script") || strings.HasPrefix(text, "unknown command called from script")
}

// ConnectError returns the error of a request without a usable connection. The request was
// not sent, so the error wraps [driver.ErrUnavailable].
func ConnectError(err error) error {
	hint, kind := "", driver.ErrUnavailable
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, driver.ErrUnavailable):
		return err
	case errors.As(err, &untrusted):
		kind = driver.ErrPermanent
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		hint = " (the server has closed the connection at once: it has reached maxclients, or requires TLS, rediss://)"
	case strings.Contains(err.Error(), "invalid reply"), strings.Contains(err.Error(), "can't parse"):
		hint = " (this is not Redis, or it requires TLS, rediss://)"
	}
	return fmt.Errorf("%w: connect: %w%s", kind, err, hint)
}

// PrimaryError returns the error of a request that had no usable connection to the primary at
// addr, which the sentinels have named. It returns a reply of the primary, and the error of a
// connection to another server, as it is.
func PrimaryError(addr string, err error) error {
	var reply ReplyError
	var op *net.OpError
	if addr == "" || err == nil || errors.As(err, &reply) || errors.As(err, &op) && op.Addr != nil && op.Addr.String() != addr {
		return err
	}
	return fmt.Errorf("the sentinels name %s as the primary (if it cannot be reached from here, as behind NAT, see their announce-ip): %w", addr, err)
}

// classify classifies an error of a call.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var reply ReplyError
	if !errors.As(err, &reply) {
		return err
	}
	told := refusal(reply)
	if errors.Is(err, driver.ErrUnavailable) && !errors.Is(told, driver.ErrUnavailable) {
		return err // the server refused it before the command was sent
	}
	return told
}

// notSent returns the error of a call that was not made because ctx had ended.
func notSent(ctx context.Context) error {
	return fmt.Errorf("%w: not sent: %w", driver.ErrUnavailable, context.Cause(ctx))
}
