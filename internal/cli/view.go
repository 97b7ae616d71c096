package cli

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// lockView is one lock as JSON.
type lockView struct {
	Key      string       `json:"key"`
	State    string       `json:"state"`              // held, closed or free
	Token    int64        `json:"token"`              // the last that was given; 0 if unknown
	Limit    int          `json:"limit,omitempty"`    // of a semaphore
	ClosedMs int64        `json:"closedMs,omitempty"` // how much longer it stays closed with nobody inside
	Holders  []holderView `json:"holders"`
	Waiters  []waiterView `json:"waiters"`
}

type holderView struct {
	LeaseID     string            `json:"leaseId"`
	Owner       string            `json:"owner"`
	Mode        string            `json:"mode"`
	Weight      int               `json:"weight,omitempty"`
	Token       int64             `json:"token"`
	Since       time.Time         `json:"since,omitzero"` // by the holder's clock
	AgeMs       int64             `json:"ageMs"`
	RemainingMs int64             `json:"remainingMs"`
	Labels      map[string]string `json:"labels,omitempty"`
	Confirmed   bool              `json:"confirmed"`
	Foreign     bool              `json:"foreign,omitempty"`
}

type waiterView struct {
	Position    int               `json:"position"`
	LeaseID     string            `json:"leaseId"`
	Owner       string            `json:"owner"`
	Mode        string            `json:"mode"`
	Weight      int               `json:"weight,omitempty"`
	Since       time.Time         `json:"since,omitzero"` // by the waiter's clock
	WaitedMs    int64             `json:"waitedMs"`
	RemainingMs int64             `json:"remainingMs"`
	Labels      map[string]string `json:"labels,omitempty"`
}

func viewOf(s driver.Snapshot) lockView {
	v := lockView{
		Key: s.Key, State: "free", Token: s.Token, Limit: s.Limit, ClosedMs: s.Closed.Milliseconds(),
		Holders: []holderView{}, Waiters: []waiterView{},
	}
	for _, h := range s.Holders {
		v.Holders = append(v.Holders, viewHolder(h))
	}
	for _, w := range s.Waiters {
		v.Waiters = append(v.Waiters, waiterView{
			Position: w.Position, LeaseID: w.ID, Owner: w.Owner, Mode: modeName(w.Mode), Weight: w.Weight,
			Since: w.Since, WaitedMs: age(w.Since).Milliseconds(), RemainingMs: w.Remaining.Milliseconds(), Labels: w.Labels,
		})
	}
	switch {
	case len(s.Holders) > 0:
		v.State = "held"
	case s.Closed > 0:
		v.State = "closed"
	}
	return v
}

func viewHolder(h driver.Holder) holderView {
	return holderView{
		LeaseID: h.ID, Owner: h.Owner, Mode: modeName(h.Mode), Weight: h.Weight, Token: h.Token,
		Since: h.Since, AgeMs: age(h.Since).Milliseconds(), RemainingMs: h.Remaining.Milliseconds(),
		Labels: h.Labels, Confirmed: h.Confirmed, Foreign: h.Foreign,
	}
}

func modeName(m driver.Mode) string {
	if m == driver.Shared {
		return "shared"
	}
	return "exclusive"
}

// age is the time since then, as well as two clocks can tell.
func age(since time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(time.Since(since), 0)
}

// ownerName is what people call a holder or waiter.
func ownerName(owner string, foreign bool) string {
	if foreign {
		return cmp.Or(owner, "another program")
	}
	return cmp.Or(owner, "others")
}

func labelText(labels map[string]string) string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, k+"="+labels[k])
	}
	return strings.Join(pairs, " ")
}
