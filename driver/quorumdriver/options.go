package quorumdriver

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Option changes a default of a quorum.
type Option func(*config)

type config struct {
	timeout time.Duration
	names   []string
	fencing bool
	guard   bool
	maxTTL  time.Duration
	maxSkew time.Duration
}

// Defaults and bounds of the options.
const (
	DefaultTimeout = time.Second
	DefaultMaxTTL  = 10 * time.Minute
	DefaultMaxSkew = time.Second

	MinTimeout = 10 * time.Millisecond
	MaxTimeout = time.Minute
)

// WithTimeout bounds how long one node may take for one answer, whatever the node's
// driver does: 10 ms to a minute, 1 s by default. A node that takes longer does not delay
// the others while they are a majority.
func WithTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithNames sets the names of the nodes in errors, in their order: "node 1", "node 2" and
// so on by default. It needs one name per node; names must be different and not empty.
func WithNames(names ...string) Option {
	return func(c *config) { c.names = append([]string{}, names...) }
}

// WithoutFencing returns no fencing tokens: they are 0. It saves the round that makes the
// nodes agree on a token if they differ, as after the first use of a key, and allows
// nodes that mint no tokens.
func WithoutFencing() Option { return func(c *config) { c.fencing = false } }

// WithoutGuard trusts a node that was restarted empty. Two clients can then hold one lock
// at once: one with the votes of a majority before the restart, the other with the vote
// of the restarted node. Use it if nodes never lose data, or if no node supports marks.
func WithoutGuard() Option { return func(c *config) { c.guard = false } }

// WithMaxTTL sets the longest time to live of a lease, and so for how long a node that
// lost its data is kept out: 10 ms to 24 h, 10 minutes by default. It is the same in all
// processes. Locks with a longer time to live are refused with [errors.ErrUnsupported].
// Without the guard there is no such bound.
func WithMaxTTL(d time.Duration) Option { return func(c *config) { c.maxTTL = d } }

// WithMaxSkew sets by how much the clocks of the nodes may differ: a node that
// lost its data is kept out for twice as long beyond [WithMaxTTL], so that its
// clock has passed the tokens that it has forgotten. 0 to 24 h, 1 s by default.
func WithMaxSkew(d time.Duration) Option { return func(c *config) { c.maxSkew = d } }

func (c *config) check(nodes int) error {
	if nodes < 1 || nodes > MaxNodes {
		return check.Errorf("%d nodes: want 1 to %d", nodes, MaxNodes)
	}
	err := cmp.Or(
		check.Range("timeout", c.timeout, MinTimeout, MaxTimeout),
		check.Range("longest TTL", c.maxTTL, check.MinTTL, check.MaxTTL),
		check.Range("clock skew", c.maxSkew, 0, check.MaxTTL),
	)
	if err == nil && c.names != nil && len(c.names) != nodes {
		err = check.Errorf("%d names for %d nodes", len(c.names), nodes)
	}
	if err != nil {
		return err
	}
	for i, name := range c.names {
		switch other := slices.Index(c.names[:i], name); {
		case name == "":
			return fmt.Errorf("node %d has no name: %w", i+1, driver.ErrInvalid)
		case other >= 0:
			return fmt.Errorf("nodes %d and %d are both %q: every node counts once, under a name of its own: %w", other+1, i+1, name, driver.ErrInvalid)
		}
	}
	return nil
}

func (c *config) nodeName(i int) string {
	if c.names == nil {
		return fmt.Sprintf("node %d", i+1)
	}
	return c.names[i]
}

// quarantine returns how long a node that lost its data is kept out. Its clock may be the
// fastest, hence the drift.
func (c *config) quarantine() time.Duration {
	return c.maxTTL + time.Duration(float64(c.maxTTL)*timing.Drift) + 2*time.Millisecond + 2*c.maxSkew
}
