package wire

import (
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Lock is the picture of one lock.
type Lock struct {
	Key     string   `json:"key"`
	State   string   `json:"state"` // held, closed or free
	Token   int64    `json:"token"` // the last one minted
	Limit   int      `json:"limit,omitempty"`
	Closed  Millis   `json:"closedMs,omitempty"` // how much longer it stays closed without a holder
	Holders []Holder `json:"holders"`
	Waiters []Waiter `json:"waiters"`
}

// Holder describes a holder of a lock.
type Holder struct {
	LeaseID   string            `json:"leaseId"`
	Owner     string            `json:"owner"`
	Mode      string            `json:"mode"`
	Weight    int               `json:"weight,omitempty"`
	Places    []int             `json:"places,omitempty"` // of a semaphore
	Token     int64             `json:"token"`
	Since     time.Time         `json:"since,omitzero"` // by the holder's clock
	Age       Millis            `json:"ageMs"`
	Remaining Millis            `json:"remainingMs"`
	Labels    map[string]string `json:"labels,omitempty"`
	Confirmed bool              `json:"confirmed"`
	Foreign   bool              `json:"foreign,omitempty"`
}

// Waiter describes a waiter for a lock.
type Waiter struct {
	Position  int               `json:"position"`
	LeaseID   string            `json:"leaseId"`
	Owner     string            `json:"owner"`
	Mode      string            `json:"mode"`
	Weight    int               `json:"weight,omitempty"`
	Since     time.Time         `json:"since,omitzero"` // by the waiter's clock
	Waited    Millis            `json:"waitedMs"`
	Remaining Millis            `json:"remainingMs"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// Locks is a page of a listing.
type Locks struct {
	Keys   []string `json:"keys"`
	Cursor string   `json:"cursor,omitempty"`
}

// LockOf returns a snapshot as JSON.
func LockOf(s driver.Snapshot) Lock {
	l := Lock{
		Key: s.Key, State: "free", Token: s.Token, Limit: s.Limit, Closed: MillisOf(s.Closed),
		Holders: []Holder{}, Waiters: []Waiter{},
	}
	for _, h := range s.Holders {
		l.Holders = append(l.Holders, HolderOf(h))
	}
	for _, w := range s.Waiters {
		l.Waiters = append(l.Waiters, Waiter{
			Position: w.Position, LeaseID: w.ID, Owner: w.Owner, Mode: ModeName(w.Mode), Weight: w.Weight,
			Since: w.Since, Waited: age(w.Since), Remaining: Floor(w.Remaining), Labels: w.Labels,
		})
	}
	switch {
	case len(s.Holders) > 0:
		l.State = "held"
	case s.Closed > 0:
		l.State = "closed"
	}
	return l
}

// Snapshot returns the JSON as the snapshot of a driver.
func (l *Lock) Snapshot() driver.Snapshot {
	s := driver.Snapshot{Key: l.Key, Token: l.Token, Limit: l.Limit, Closed: l.Closed.Duration()}
	for i := range l.Holders {
		s.Holders = append(s.Holders, l.Holders[i].Holder())
	}
	for _, w := range l.Waiters {
		mode, _ := ParseMode(w.Mode)
		s.Waiters = append(s.Waiters, driver.Waiter{
			ID: w.LeaseID, Owner: w.Owner, Mode: mode, Weight: w.Weight, Position: w.Position,
			Since: w.Since, Remaining: w.Remaining.Duration(), Labels: w.Labels,
		})
	}
	return s
}

// HolderOf returns a holder as JSON.
func HolderOf(h driver.Holder) Holder {
	id := h.ID
	if h.Foreign {
		id = "" // a driver returns the value of the key here, which may be a secret
	}
	return Holder{
		LeaseID: id, Owner: h.Owner, Mode: ModeName(h.Mode), Weight: h.Weight, Places: h.Places.Numbers(), Token: h.Token,
		Since: h.Since, Age: age(h.Since), Remaining: Floor(h.Remaining),
		Labels: h.Labels, Confirmed: h.Confirmed, Foreign: h.Foreign,
	}
}

// Holder returns the JSON as the holder of a driver.
func (h *Holder) Holder() driver.Holder {
	mode, _ := ParseMode(h.Mode) // an unknown mode is shown as exclusive
	return driver.Holder{
		ID: h.LeaseID, Owner: h.Owner, Mode: mode, Weight: h.Weight, Places: driver.PlacesOf(h.Places), Token: h.Token, Since: h.Since,
		Remaining: h.Remaining.Duration(), Labels: h.Labels, Confirmed: h.Confirmed, Foreign: h.Foreign,
	}
}

// age returns the time since the clock of another machine showed since.
func age(since time.Time) Millis {
	if since.IsZero() {
		return 0
	}
	return Floor(max(time.Since(since), 0))
}
