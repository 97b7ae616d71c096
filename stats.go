package leasehold

import (
	"errors"
	"sync/atomic"
)

// Stats is what a health check or a metric needs. Counts are since the client
// was made.
type Stats struct {
	// Held and Waiting are how many leases are held and how many calls wait,
	// now.
	Held, Waiting int
	// Granted counts leases, Refused the calls that ended unserved.
	Granted, Refused int64
	// Released counts leases that were given back, Lost those that were lost.
	Released, Lost int64
	// Renewed and Failed count renewals that were and were not confirmed.
	Renewed, Failed int64
}

// Stats returns the current figures.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	held, waiting := len(c.holds), len(c.waiters)
	c.mu.Unlock()
	n := &c.counts
	return Stats{
		Held: held, Waiting: waiting,
		Granted: n.granted.Load(), Refused: n.refused.Load(),
		Released: n.released.Load(), Lost: n.lost.Load(),
		Renewed: n.renewed.Load(), Failed: n.failed.Load(),
	}
}

type counters struct {
	granted, refused, lost, released, renewed, failed atomic.Int64
}

func (n *counters) end(cause error) {
	if errors.Is(cause, ErrLost) {
		n.lost.Add(1)
	} else {
		n.released.Add(1)
	}
}

func (n *counters) renewal(err error) {
	if err != nil {
		n.failed.Add(1)
	} else {
		n.renewed.Add(1)
	}
}
