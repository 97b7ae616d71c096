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

// request is one command on its way.
type request struct {
	*Client
	words []string
	want  redisroom.Acks
	began time.Time
}

func (r *request) slot() int { return redisroom.Slot(r.words[firstKey]) }

// follow returns the outcome of a command that has failed at a node: it goes where
// that sends it, and, if the node could not be reached, to the one that has taken
// its place. What may have had an effect is not repeated.
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
		r.learn(addr, a.Err)
	}
	return a
}

// next returns where a command is to be sent after it has failed at a node, if
// anywhere, and whether that has to be said to be an exception.
func (r *request) next(ctx context.Context, addr string, err error) (next string, asking bool) {
	next, asking = redisroom.Redirection(err)
	switch {
	case next != "":
		next = redirected(addr, next)
		if !asking {
			r.config.Picture.patch(r.slot(), next)
			r.look()
		}
		return next, asking
	case isUnsent(err):
		r.suspect(addr, true)
		return r.successor(ctx, addr), false
	}
	return "", false
}

// successor returns the address of the node that has taken the place of one that
// cannot be reached, if there is one yet.
func (r *request) successor(ctx context.Context, addr string) string {
	if !r.config.Picture.since(r.began) && r.look().wait(ctx) != nil {
		return ""
	}
	if now, _ := r.config.Picture.primary(r.slot()); now != addr {
		return now
	}
	return ""
}

// isUnsent reports whether a request certainly was not sent.
func isUnsent(err error) bool {
	return errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrClosed) && !isReply(err)
}

func isReply(err error) bool {
	var reply redisroom.ReplyError
	return errors.As(err, &reply)
}

// learn has the picture renewed if an error may come from an old one.
func (r *request) learn(addr string, err error) {
	var reply redisroom.ReplyError
	switch {
	case errors.Is(err, context.Canceled):
	case !errors.As(err, &reply):
		r.suspect(addr, true)
		r.look()
	case strings.HasPrefix(string(reply), "READONLY"), strings.HasPrefix(string(reply), "CLUSTERDOWN"), strings.HasPrefix(string(reply), "MOVED"):
		r.look()
	}
}

// resend runs the command on a node, which is about to take over the command's slot
// if asking is set.
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
