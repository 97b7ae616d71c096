package rediscluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

const (
	// maxParallel is how many nodes are asked at once, since one of them may hang.
	maxParallel = 3
	// If nodes are silent for timeout / hedgeAfter, further nodes are asked as well.
	hedgeAfter = 16
	// maxAge is the age at which the topology is renewed while it is used.
	maxAge = 5 * time.Second
	// pause is the least time between two questions.
	pause = 20 * time.Millisecond
)

// discovery is one question for the topology, for which several calls may wait.
type discovery struct {
	done chan struct{} // closed when err is set
	err  error
}

// discover begins to ask the cluster for its topology, unless a question is under way.
func (c *Client) discover() *discovery {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looking != nil {
		return c.looking
	}
	l := &discovery{done: make(chan struct{})}
	if c.closed || c.config.Topology.single.Load() {
		if c.closed {
			l.err = redisroom.ErrClosed
		}
		close(l.done)
		return l
	}
	c.looking = l
	early := pause - time.Since(c.looked)
	c.work.Go(func() {
		time.Sleep(early)
		l.err = c.ask()
		c.mu.Lock()
		c.looking, c.looked = nil, time.Now()
		c.mu.Unlock()
		close(l.done)
	})
	return l
}

// wait waits for the answer.
func (l *discovery) wait(ctx context.Context) error {
	if cause := redisroom.Wait(ctx, l.done); cause != nil {
		return fmt.Errorf("%w: not sent: the cluster's topology is unknown: %w", driver.ErrUnavailable, cause)
	}
	return l.err
}

// refresh requests a new topology, and waits briefly for it.
func (c *Client) refresh(ctx context.Context) {
	timer := time.NewTimer(c.config.Timeout / hedgeAfter)
	defer timer.Stop()
	select {
	case <-c.discover().done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// report is the answer of a node.
type report struct {
	ranges []Range
	err    error
	addr   string
}

// ask asks nodes, some at a time, until one of them has returned the topology.
func (c *Client) ask() error {
	asked := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), c.config.Timeout)
	defer cancel()
	if c.config.Look != nil {
		ranges, err := c.config.Look(ctx)
		if err != nil || len(ranges) == 0 {
			return c.unknownError([]error{oneline.Join(err, errors.New("the application returned no slots"))})
		}
		c.config.Topology.replace(ranges, asked)
		return nil
	}
	addrs := c.candidates()
	reports := make(chan report, len(addrs))
	next := time.NewTicker(max(c.config.Timeout/hedgeAfter, time.Millisecond))
	defer next.Stop()
	begun, failed := 0, 0
	begin := func() {
		if begun < len(addrs) {
			addr := addrs[begun]
			begun++
			c.work.Go(func() { reports <- c.askNode(addr) })
		}
	}
	for range maxParallel {
		begin()
	}
	var errs []error
	for failed < begun {
		select {
		case r := <-reports:
			if r.err == nil {
				c.suspect(r.addr, false)
				c.config.Topology.replace(r.ranges, asked)
				return nil
			}
			if c.config.MayBeOne && isSingle(r.err) {
				c.config.Topology.setSingle(r.addr)
				return nil
			}
			failed++
			errs = append(errs, r.err)
			begin()
		case <-next.C:
			begin()
		case <-ctx.Done():
			errs = append(errs, context.DeadlineExceeded)
			failed = begun
		}
	}
	return c.unknownError(errs)
}

// isSingle reports whether an error means that a server belongs to no cluster, or that its
// user may not ask.
func isSingle(err error) bool {
	return redisroom.IsReply(err) && strings.Contains(strings.ToUpper(err.Error()), "CLUSTER")
}

// unknownError returns the error if no node has returned the topology.
func (c *Client) unknownError(errs []error) error {
	for _, err := range errs {
		if redisroom.IsReply(err) {
			return err // more informative than timeouts of other nodes
		}
	}
	if len(errs) == 0 {
		errs = []error{errors.New("no node is known")}
	}
	// Prefer an error that may pass with time.
	first := max(0, slices.IndexFunc(errs, func(err error) bool { return !errors.Is(err, driver.ErrPermanent) }))
	return fmt.Errorf("%w: no node of the cluster returned its topology: %w", driver.ErrUnavailable, errs[first])
}

// askNode asks one node. The question lasts until the timeout of a request, also when
// another node has answered: cancelling it would cost the connection.
func (c *Client) askNode(addr string) report {
	node, err := c.node(addr)
	if err != nil {
		return report{err: err, addr: addr}
	}
	reply, err := node.Ask(context.Background(), addr, "CLUSTER", "SLOTS")
	if err != nil {
		return report{err: err, addr: addr}
	}
	ranges, err := parseSlots(reply, addr)
	return report{ranges, err, addr}
}

// candidates returns the nodes that may know the topology, in the order in which they are
// asked: primaries first, nodes that have failed last, and otherwise at random.
func (c *Client) candidates() []string {
	primaries, replicas := c.config.Topology.nodes()
	addrs := slices.Concat(shuffled(primaries), shuffled(replicas), shuffled(c.config.Seeds))
	var good, bad []string
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, addr := range addrs {
		switch {
		case slices.Contains(good, addr) || slices.Contains(bad, addr):
		case c.isSuspect(addr):
			bad = append(bad, addr)
		default:
			good = append(good, addr)
		}
	}
	return append(good, bad...)
}

func shuffled(addrs []string) []string {
	addrs = slices.Clone(addrs)
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs
}

// suspectFor is how long a node that has failed is asked last.
const suspectFor = 10 * time.Second

// suspect notes whether a node has failed.
func (c *Client) suspect(addr string, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !failed {
		delete(c.suspects, addr)
	} else {
		c.suspects[addr] = time.Now()
	}
}

// isSuspect reports whether a node has failed lately. The caller holds mu.
func (c *Client) isSuspect(addr string) bool {
	failed, ok := c.suspects[addr]
	return ok && time.Since(failed) < suspectFor
}
