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
	// Released counts leases that were given back, or left by Detach, and Lost
	// those that were lost, also if that was found out at their release: as
	// Observers are told.
	Released, Lost int64
	// Renewed and Failed count the renewals of leases that were and were not
	// confirmed. One that finds the lease gone has failed.
	Renewed, Failed int64
}

// Stats returns the current figures.
func (c *Client) Stats() Stats {
	held, waiting := c.session.Size()
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

// end counts a lease that is over. One that was not lost is counted when it has
// been given back.
func (n *counters) end(cause error) {
	if errors.Is(cause, ErrLost) {
		n.lost.Add(1)
	}
}

// gaveBack counts a lease that was live when it was given back, by the outcome.
func (n *counters) gaveBack(err error) {
	if errors.Is(err, ErrLost) {
		n.lost.Add(1)
	} else {
		n.released.Add(1)
	}
}

func (n *counters) renewal(confirmed bool) {
	if confirmed {
		n.renewed.Add(1)
	} else {
		n.failed.Add(1)
	}
}
