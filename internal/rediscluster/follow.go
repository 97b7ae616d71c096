package rediscluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// request is one command under way.
type request struct {
	*Client
	words []string
	want  redisroom.Acks
	began time.Time
}

func (r *request) slot() int { return redisroom.Slot(r.words[redisroom.FirstKey]) }

// follow returns the outcome of a command that has failed at a node. It follows
// redirections, and uses the successor of a node that could not be reached. It never
// repeats a command that may have had an effect.
func (r *request) follow(ctx context.Context, addr string, a redisroom.Answer) redisroom.Answer {
	ctx, cancel := context.WithDeadline(ctx, r.began.Add(r.config.Timeout))
	defer cancel()
	for hop := 0; a.Err != nil && hop < maxHops; hop++ {
		next, asking := r.next(ctx, addr, a.Err)
		if next == "" {
			break
		}
		r.hops.Add(1)
		addr = next
		a = r.resend(ctx, addr, asking)
	}
	if a.Err != nil {
		r.noteError(addr, a.Err)
	}
	return a
}

// next returns the node for a command that has failed, if there is one, and whether the
// command needs ASKING there.
func (r *request) next(ctx context.Context, addr string, err error) (next string, asking bool) {
	next, asking = redisroom.Redirection(err)
	switch {
	case next != "":
		next = redirected(addr, next)
		if !asking {
			r.config.Topology.setSlot(r.slot(), next)
			r.discover()
		}
		return next, asking
	case redisroom.IsUnsent(err) && !redisroom.IsReply(err):
		r.suspect(addr, true)
		return r.successor(ctx, addr), false
	}
	return "", false
}

// successor returns the address of the node that has replaced an unreachable one, if
// there is one yet.
func (r *request) successor(ctx context.Context, addr string) string {
	if !r.config.Topology.refreshedSince(r.began) && r.discover().wait(ctx) != nil {
		return ""
	}
	if now, _ := r.config.Topology.primary(r.slot()); now != addr {
		return now
	}
	return ""
}

// noteError requests a new topology if an error may come from an old one.
func (r *request) noteError(addr string, err error) {
	var reply redisroom.ReplyError
	switch {
	case errors.Is(err, context.Canceled):
	case !errors.As(err, &reply):
		r.suspect(addr, true)
		r.discover()
	case strings.HasPrefix(string(reply), "READONLY"), strings.HasPrefix(string(reply), "CLUSTERDOWN"), strings.HasPrefix(string(reply), "MOVED"):
		r.discover()
	}
}

// resend runs the command on a node. asking is set if the node is about to take over the
// slot.
func (r *request) resend(ctx context.Context, addr string, asking bool) (a redisroom.Answer) {
	if ctx.Err() != nil {
		return redisroom.Answer{Err: fmt.Errorf("%w: not sent: %w", driver.ErrUnavailable, context.Cause(ctx))}
	}
	node, err := r.node(addr)
	if err != nil {
		return redisroom.Answer{Err: err}
	}
	cmds := [][]string{r.words}
	if asking {
		cmds = [][]string{{"ASKING"}, r.words}
	}
	node.Run(ctx, cmds, r.want, func(_ int, last redisroom.Answer) { a = last })
	return a
}
