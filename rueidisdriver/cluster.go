package rueidisdriver

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// rueidis sends every command to the node that serves it and follows
// redirections, but returns the replies of many only when the last node has
// answered. To hear the fast ones earlier, the commands are sorted by node
// here first; a stale picture of the cluster costs time, never a wrong answer.

const (
	// firstKey is the index of the first key in a command.
	firstKey = 3
	// maxHops bounds the redirections that one command follows.
	maxHops = 3
)

// topologyAge is how old the picture may be before it is renewed.
const topologyAge = 10 * time.Second

// slotRange is a run of slots that one primary serves.
type slotRange struct {
	first, last int
	primary     string
}

// topology is what is known about who serves which slot.
type topology struct {
	mu     sync.Mutex
	ranges []slotRange
	asked  time.Time
}

// asked is how many nodes are asked at once: one may hang.
const asked = 3

// clusterSlots returns the first answer of some nodes. The others are not
// interrupted: what waits for the same connection would be too.
func (s *seam) clusterSlots(ctx context.Context, client rueidis.Client) (reply []rueidis.RedisMessage, err error) {
	var nodes []rueidis.Client
	for _, node := range client.Nodes() { // in an order of chance
		if nodes = append(nodes, node); len(nodes) == asked {
			break
		}
	}
	type result struct {
		reply []rueidis.RedisMessage
		err   error
	}
	results := make(chan result, len(nodes))
	ask := func(node rueidis.Client) {
		try := s.begin(context.WithoutCancel(ctx))
		defer try.End()
		reply, err := node.Do(try, node.B().ClusterSlots().Build()).ToArray()
		results <- result{reply, err}
	}
	if err := s.start(nodes, ask); err != nil {
		return nil, err
	}
	err = rueidis.ErrNoAddr
	for range nodes {
		select {
		case r := <-results:
			if r.err == nil {
				return r.reply, nil
			}
			err = r.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, err
}

// start runs f for each of the nodes, in goroutines that Close waits for.
func (s *seam) start(nodes []rueidis.Client, f func(rueidis.Client)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return closedError()
	}
	for _, node := range nodes {
		s.work.Go(func() { f(node) })
	}
	return nil
}

// look asks the cluster.
func (s *seam) look(ctx context.Context, client rueidis.Client) ([]slotRange, error) {
	reply, err := s.clusterSlots(ctx, client)
	if err != nil {
		return nil, err
	}
	var ranges []slotRange
	for _, entry := range reply {
		r, err := parseRange(entry)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	t := &s.topology
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ranges = ranges
	return ranges, nil
}

// parseRange reads an entry of CLUSTER SLOTS: first, last, primary, replicas.
func parseRange(entry rueidis.RedisMessage) (r slotRange, err error) {
	fields, err := entry.ToArray()
	if err != nil || len(fields) < 3 {
		return r, fmt.Errorf("CLUSTER SLOTS: %v", entry)
	}
	first, err1 := fields[0].AsInt64()
	last, err2 := fields[1].AsInt64()
	node, err3 := fields[2].ToArray()
	if err1 != nil || err2 != nil || err3 != nil || len(node) < 2 {
		return r, fmt.Errorf("CLUSTER SLOTS: %v", entry)
	}
	host, _ := node[0].ToString()
	port, _ := node[1].AsInt64()
	return slotRange{int(first), int(last), net.JoinHostPort(host, strconv.FormatInt(port, 10))}, nil
}

// primary returns the address of the node that serves a slot, or nothing.
func primary(ranges []slotRange, slot int) string {
	for _, r := range ranges {
		if slot >= r.first && slot <= r.last {
			return r.primary
		}
	}
	return ""
}

// known returns the last picture, and has it renewed in the background when it
// is old: the node that is asked might be the one that hangs.
func (s *seam) known(ctx context.Context, client rueidis.Client) []slotRange {
	t := &s.topology
	t.mu.Lock()
	ranges, old := t.ranges, time.Since(t.asked) > topologyAge
	if old {
		t.asked = time.Now()
	}
	t.mu.Unlock()
	if !old {
		return ranges
	}
	fresh := s.refresh(client)
	if ranges != nil {
		return ranges
	}
	select {
	case ranges = <-fresh:
	case <-ctx.Done():
	}
	return ranges
}

// refresh asks the cluster in the background.
func (s *seam) refresh(client rueidis.Client) <-chan []slotRange {
	done := make(chan []slotRange, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		done <- nil
		return done
	}
	s.work.Go(func() {
		try := s.begin(context.Background())
		defer try.End()
		ranges, _ := s.look(try, client)
		done <- ranges
	})
	return done
}

// answer is the outcome of one of many commands.
type answer struct {
	i int
	redisroom.Answer
}

// runCluster runs the commands on all nodes at once, and reports those of one
// node without waiting for another.
func (s *seam) runCluster(ctx context.Context, client rueidis.Client, cmds [][]string, want redisroom.Acks, each func(int, redisroom.Answer)) {
	ranges := s.known(ctx, client)
	nodes := make(map[string][]int)
	for i, cmd := range cmds {
		node := primary(ranges, redisroom.Slot(cmd[firstKey]))
		nodes[node] = append(nodes[node], i)
	}
	answers := make(chan answer, len(cmds))
	report := func(i int, a redisroom.Answer) { answers <- answer{i, a} }
	for node, which := range nodes {
		if want.Replicas > 0 {
			go s.runNode(ctx, client, node, cmds, which, want, report)
		} else {
			go s.pipeline(ctx, client, cmds, which, want, report)
		}
	}
	for range cmds {
		a := <-answers
		each(a.i, a.Answer)
	}
}
