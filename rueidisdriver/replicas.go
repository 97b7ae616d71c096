package rueidisdriver

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// A WAIT must follow what it is for on the same connection. rueidis follows a
// redirection with the redirected command alone, and the WAIT would count the
// replicas of the wrong node. So commands that want acks are sent to the nodes'
// own clients, which follow nothing, and redirections are followed here.

// runNode runs commands with their WAIT on one node.
func (s *seam) runNode(ctx context.Context, client rueidis.Client, addr string, cmds [][]string, which []int, want redisroom.Acks, each func(int, redisroom.Answer)) {
	node, err := s.node(ctx, client, addr, cmds[which[0]][firstKey])
	if err != nil {
		for _, i := range which {
			each(i, redisroom.Answer{Err: err})
		}
		return
	}
	s.pipeline(ctx, node, cmds, which, want, func(i int, a redisroom.Answer) {
		each(i, s.follow(ctx, client, cmds[i], want, a))
	})
}

// follow goes where a command was redirected to, and returns its outcome.
func (s *seam) follow(ctx context.Context, client rueidis.Client, cmd []string, want redisroom.Acks, a redisroom.Answer) redisroom.Answer {
	for range maxHops {
		addr, asking := redisroom.Redirection(a.Err)
		if addr == "" {
			break
		}
		s.hops.Add(1)
		s.topology.forget()
		node, err := s.node(ctx, client, addr, cmd[firstKey])
		if err != nil {
			return redisroom.Answer{Err: err}
		}
		a = s.resend(ctx, node, cmd, want, asking)
	}
	return a
}

// resend runs one command with its WAIT on a node, which is about to take over
// the command's slot if asking is set.
func (s *seam) resend(ctx context.Context, node rueidis.Client, cmd []string, want redisroom.Acks, asking bool) redisroom.Answer {
	try := s.begin(ctx)
	defer try.End()
	var sent []rueidis.Completed
	if asking {
		sent = append(sent, node.B().Asking().Build())
	}
	sent = append(sent, command(node, cmd), wait(try, node, want))
	results := node.DoMulti(try, sent...)
	last := len(results) - 1
	return s.answer(ctx, results[last-1], results[last:])
}

// node returns the client of the node at addr, or of the one that serves the key
// if addr is not known. A node that rueidis has not heard of yet it learns of
// from a redirection of its own.
func (s *seam) node(ctx context.Context, client rueidis.Client, addr, key string) (rueidis.Client, error) {
	if node := client.Nodes()[addr]; node != nil {
		return node, nil
	}
	try := s.begin(ctx)
	defer try.End()
	_ = client.Do(try, client.B().Exists().Key(key).Build()).Error()
	if addr == "" {
		addr = primary(<-s.refresh(client), redisroom.Slot(key))
	}
	if node := client.Nodes()[addr]; node != nil {
		return node, nil
	}
	return nil, fmt.Errorf("%w: %q is not a node of the cluster, as far as its nodes tell", driver.ErrUnavailable, addr)
}

// forget makes the next look at the topology a fresh one.
func (t *topology) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = time.Time{}
}
