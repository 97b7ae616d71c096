package leasehold

import (
	"errors"
	"sync/atomic"
)

// Stats is what a health check or a metric needs. Counts are since the client
// was made.
type Stats struct {
	// Held is how many leases are held now. A lease that was re-entered under its
	// context counts once.
	Held int
	// Waiting is how many calls of Lock wait now for a lock that others have: those
	// that have been told so by the store, whether they wait in its queue, poll a store
	// that has none, or ask again after the delays of [WithRetry]. A call that the
	// store has not answered yet does not count, nor does a TryLock.
	Waiting int
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
	n := &c.counts
	return Stats{
		Held: c.session.Held(), Waiting: int(n.waiting.Load()),
		Granted: n.granted.Load(), Refused: n.refused.Load(),
		Released: n.released.Load(), Lost: n.lost.Load(),
		Renewed: n.renewed.Load(), Failed: n.failed.Load(),
	}
}

type counters struct {
	waiting                                           atomic.Int64 // now
	granted, refused, lost, released, renewed, failed atomic.Int64
}

// end counts a lease that is over. One that was not lost is counted when it has
// been given back.
func (n *counters) end(cause error) {
	if wasLost(cause) {
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
