package quorumdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// Inspect implements [driver.Inspector]. It shows holders and waiters that a majority of
// the nodes shows. Remaining is the time for which a majority keeps the holder. Waiters
// come in the order in which they began to wait, which is not the order in which they are
// served. The error matches [driver.ErrNoQuorum] if a majority did not answer.
func (s *Driver) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	return s.picture(ctx, key, inspect)
}

// Glance implements [driver.Glancer].
func (s *Driver) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	return s.picture(ctx, key, driver.Glance)
}

// lookFunc reads the picture of a lock at a node.
type lookFunc func(ctx context.Context, d driver.Driver, key string) (driver.Snapshot, error)

func inspect(ctx context.Context, d driver.Driver, key string) (driver.Snapshot, error) {
	in, err := inspector(d)
	if err != nil {
		return driver.Snapshot{}, err
	}
	return in.Inspect(ctx, key)
}

func inspector(d driver.Driver) (driver.Inspector, error) {
	if in, ok := driver.As[driver.Inspector](d); ok {
		return in, nil
	}
	return nil, fmt.Errorf("its store cannot be looked into: %w", errors.ErrUnsupported)
}

// picture returns what a majority of the nodes shows.
func (s *Driver) picture(ctx context.Context, key string, see lookFunc) (driver.Snapshot, error) {
	if err := s.enter(ctx); err != nil {
		return driver.Snapshot{}, err
	}
	defer s.work.Done()
	seen, err := s.look(ctx, key, see)
	if err != nil {
		return driver.Snapshot{}, err
	}
	return s.merge(key, seen), nil
}

// look asks all nodes for their picture, and waits for all that answer in time: the
// fastest node need not know a holder that a majority has.
func (s *Driver) look(ctx context.Context, key string, see lookFunc) (seen []answer[driver.Snapshot], err error) {
	r := query(ctx, s, s.allNodes(), s.timeout, func(ctx context.Context, n *node) (driver.Snapshot, error) {
		return see(ctx, n.Driver, key)
	})
	defer r.finish(nil)
	var failed []answer[driver.Reply]
	for len(seen) < s.need || r.worthWaiting() {
		a, ok := r.next()
		if !ok {
			break
		}
		if a.err != nil {
			failed = append(failed, answer[driver.Reply]{node: a.node, err: a.err})
			continue
		}
		seen = append(seen, a)
	}
	if len(seen) < s.need {
		return nil, s.lookError(ctx, failed)
	}
	return seen, nil
}

// lookError returns the error if too few nodes answered.
func (s *Driver) lookError(ctx context.Context, failed []answer[driver.Reply]) error {
	for _, a := range failed {
		if errors.Is(a.err, errors.ErrUnsupported) {
			return s.nodes[a.node].named(a.err)
		}
	}
	return s.undecided(ctx, failed)
}

// merge makes one picture of the nodes' pictures.
func (s *Driver) merge(key string, seen []answer[driver.Snapshot]) driver.Snapshot {
	out := driver.Snapshot{Key: key}
	holders, waiters := make(map[string][]driver.Holder), make(map[string][]driver.Waiter)
	var tokens []int64
	var closed []time.Duration
	for _, a := range seen {
		snap := a.value
		for _, h := range snap.Holders {
			holders[h.ID] = append(holders[h.ID], h)
		}
		for _, w := range snap.Waiters {
			waiters[w.ID] = append(waiters[w.ID], w)
		}
		tokens, closed = append(tokens, snap.Token), append(closed, snap.Closed)
	}
	for _, seen := range holders {
		if len(seen) >= s.need {
			out.Holders = append(out.Holders, s.mergeHolder(seen))
		}
	}
	for _, seen := range waiters {
		if len(seen) >= s.need {
			out.Waiters = append(out.Waiters, seen[0])
		}
	}
	// Each instance of slices.SortFunc would add 12 kB to a program.
	sort.Slice(out.Holders, func(i, j int) bool { return out.Holders[i].Since.Before(out.Holders[j].Since) })
	sort.Slice(out.Waiters, func(i, j int) bool { return out.Waiters[i].Since.Before(out.Waiters[j].Since) })
	for i := range out.Waiters {
		out.Waiters[i].Position = i + 1
	}
	if s.fencing {
		slices.Sort(tokens)
		out.Token, _ = agreed(tokens, s.need)
	}
	if len(out.Holders) == 0 {
		slices.Sort(closed)
		out.Closed = closed[len(closed)-s.need]
	}
	return out
}

// mergeHolder returns a majority's view of a holder: how long it keeps a majority, and
// whether it is exclusive at a majority. A node that was away during a downgrade still
// has the exclusive lease.
func (s *Driver) mergeHolder(seen []driver.Holder) driver.Holder {
	h := seen[0]
	writers := 0
	for _, other := range seen {
		if other.Mode == driver.Exclusive {
			writers++
		} else {
			h.Mode, h.Weight = other.Mode, other.Weight
		}
	}
	if writers >= s.need {
		h.Mode, h.Weight = driver.Exclusive, 1
	}
	var tokens []int64
	sort.Slice(seen, func(i, j int) bool { return seen[i].Remaining < seen[j].Remaining })
	for _, other := range seen {
		tokens = append(tokens, other.Token)
		h.Confirmed = h.Confirmed || other.Confirmed
	}
	h.Remaining, h.Token = seen[len(seen)-s.need].Remaining, 0
	if s.fencing {
		slices.Sort(tokens)
		h.Token, _ = agreed(tokens, s.need)
	}
	return h
}

// List implements [driver.Inspector]. Only a minority of nodes can lack a key that a
// majority holds, so List lists one node more than a minority, one after the other, and
// inspects each key. A key may be returned once for every listed node.
func (s *Driver) List(ctx context.Context, prefix, cursor string) ([]string, string, error) {
	c, err := parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	if err := s.enter(ctx); err != nil {
		return nil, "", err
	}
	defer s.work.Done()
	var failed []answer[driver.Reply]
	for ; c.node < len(s.nodes) && ctx.Err() == nil; c.at, c.node = "", c.node+1 {
		keys, next, err := s.listAt(ctx, c.node, prefix, c.at)
		if err != nil {
			failed = append(failed, answer[driver.Reply]{node: c.node, err: err})
			continue
		}
		if c.at = next; next == "" {
			c.listed, c.node = c.listed+1, c.node+1
		}
		if c.listed > len(s.nodes)-s.need {
			return s.inUse(ctx, keys, "")
		}
		return s.inUse(ctx, keys, c.String())
	}
	return nil, "", s.lookError(ctx, failed)
}

// cursor is the position of a listing: within one node, after a number of complete nodes.
type cursor struct {
	listed, node int
	at           string
}

func (c *cursor) String() string { return fmt.Sprintf("%d %d %s", c.listed, c.node, c.at) }

func parseCursor(text string) (c cursor, err error) {
	if text == "" {
		return c, nil
	}
	_, _ = fmt.Sscan(text, &c.listed, &c.node)
	if words := strings.SplitN(text, " ", 3); len(words) == 3 {
		c.at = words[2]
	}
	if c.String() != text || c.listed < 0 || c.node < 0 {
		return c, fmt.Errorf("cursor %q is not one of this store: %w", text, driver.ErrInvalid)
	}
	return c, nil
}

func (s *Driver) listAt(ctx context.Context, i int, prefix, at string) (keys []string, next string, err error) {
	type page struct {
		keys []string
		next string
	}
	r := query(ctx, s, set(0).with(i), s.timeout, func(ctx context.Context, n *node) (p page, err error) {
		in, err := inspector(n.Driver)
		if err == nil {
			p.keys, p.next, err = in.List(ctx, prefix, at)
		}
		return p, err
	})
	defer r.finish(nil)
	a, _ := r.next()
	return a.value.keys, a.value.next, a.err
}

// inUse returns the keys that a majority sees in use.
func (s *Driver) inUse(ctx context.Context, keys []string, next string) ([]string, string, error) {
	const together = 16
	used, errs := make([]bool, len(keys)), make([]error, len(keys))
	var wg sync.WaitGroup
	places := make(chan struct{}, together)
	for k, key := range keys {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			snap, err := s.Inspect(ctx, key)
			used[k], errs[k] = len(snap.Holders)+len(snap.Waiters) > 0 || snap.Closed > 0, err
		})
	}
	wg.Wait()
	if err := oneline.Join(errs...); err != nil {
		return nil, "", err
	}
	var kept []string
	for k, key := range keys {
		if used[k] {
			kept = append(kept, key)
		}
	}
	return kept, next, nil
}
