package overview

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/internal/wire"
)

// One is what a page shows of one lock.
type One struct {
	Lock wire.Lock `json:"lock"`
	Row  Row       `json:"row"`
	// Store is what is odd about all locks.
	Store []Flag `json:"store"`
	// Queue is how many wait, of whom Lock has the first.
	Queue int `json:"queue"`
	// Events are what has happened, the latest first, and HandOvers the last ones.
	Events    []Event    `json:"events"`
	HandOvers []HandOver `json:"handOvers"`
	// Since is from when on the service knows what happened.
	Since time.Time `json:"since"`
	// MayBreak tells that the page may offer to break the lease.
	MayBreak bool `json:"mayBreak"`
}

// follower is a page that shows one lock.
type follower struct {
	version, noted uint64
	more           chan struct{} // holds a token
}

// tell has the page look if the lock has changed, or what is noted of its past.
func (f *follower) tell(version, noted uint64) {
	if f.version == version && f.noted == noted {
		return
	}
	f.version, f.noted = version, noted
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// Follower shows one lock.
type Follower struct {
	o     *Overview
	key   string
	f     *follower
	leave func()
}

// Follow opens a page about one lock. The caller closes it.
func (o *Overview) Follow(key string) *Follower {
	p := &Follower{o: o, key: key, f: &follower{more: make(chan struct{}, 1)}, leave: o.open()}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.followed[key]++
	if o.followers[key] == nil {
		o.followers[key] = make(map[*follower]bool)
	}
	o.followers[key][p.f] = true
	return p
}

// Close ends the interest of the page.
func (p *Follower) Close() {
	p.o.mu.Lock()
	delete(p.o.followers[p.key], p.f)
	if p.o.followed[p.key]--; p.o.followed[p.key] == 0 {
		delete(p.o.followed, p.key)
		delete(p.o.followers, p.key)
	}
	p.o.mu.Unlock()
	p.leave()
}

// Next waits until the lock has been looked at and is not as it was. What is there when
// ctx ends is returned.
func (p *Follower) Next(ctx context.Context) (One, error) {
	select {
	case <-p.f.more:
	case <-ctx.Done():
		select {
		case <-p.f.more:
		default:
			return One{}, ctx.Err()
		}
	}
	return p.now(), nil
}

// now is what is known.
func (p *Follower) now() One {
	p.o.mu.Lock()
	one := One{Since: p.o.log.began}
	if e := p.o.table[p.key]; e != nil {
		one.Queue = len(e.snap.Waiters)
		short := e.snap
		short.Waiters = short.Waiters[:min(len(short.Waiters), maxKept)]
		one.Lock, one.Row = wire.LockOf(short), e.row(time.Now())
	}
	p.o.mu.Unlock()
	one.Events, one.HandOvers = p.o.log.past(p.key)
	if one.Events == nil {
		one.Events = []Event{}
	}
	if one.HandOvers == nil {
		one.HandOvers = []HandOver{}
	}
	return one
}

// Finding is what a store says about itself.
type Finding struct {
	Severity string `json:"severity"`
	Check    string `json:"check"`
	Subject  string `json:"subject,omitempty"`
	What     string `json:"what"`
	Why      string `json:"why,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
}

// Node is a server behind a store.
type Node struct {
	Name   string `json:"name"`
	Server string `json:"server,omitempty"`
}

// Vitals are how the store and the service are.
type Vitals struct {
	// Store is its address, without secrets.
	Store string    `json:"store"`
	Since time.Time `json:"since"`
	Now   time.Time `json:"now"`
	// Interval is the length of a sample.
	Interval wire.Millis `json:"intervalMs"`
	Samples  []Sample    `json:"samples"`
	// Checked is when Findings and Nodes were asked for; absent if the store cannot
	// tell, or has not been asked.
	Checked  time.Time `json:"checked,omitzero"`
	Problem  string    `json:"problem,omitempty"`
	Findings []Finding `json:"findings"`
	Nodes    []Node    `json:"nodes"`
	// Services are those that serve the store with a page, this one included, as far as
	// they have told of themselves since a page was opened.
	Services []Service `json:"services"`
	Pages    int       `json:"pages"`
	Budget   int       `json:"budget"`
}

// Vitals returns how things are. It asks nothing of the store.
func (o *Overview) Vitals(now time.Time) Vitals {
	h := Vitals{
		Now: now, Interval: wire.MillisOf(sampleEvery), Budget: LooksPerSecond,
		Findings: []Finding{}, Nodes: []Node{}, Services: o.presence.get(),
	}
	j := o.log
	j.mu.Lock()
	j.ring.roll(now)
	h.Since, h.Samples = j.began, append(append([]Sample{}, j.ring.done...), j.ring.current())
	j.mu.Unlock()
	o.mu.Lock()
	h.Pages = o.pages
	o.mu.Unlock()
	report, at, err := o.health.get()
	h.Checked = at
	if err != nil {
		h.Problem = "the store could not be asked what makes locks in it unsafe"
	}
	for _, f := range report.Findings {
		h.Findings = append(h.Findings, Finding{f.Severity.String(), f.Check, f.Subject, f.What, f.Why, f.Remedy})
	}
	for _, n := range report.Nodes {
		h.Nodes = append(h.Nodes, Node{n.Name, n.Server})
	}
	return h
}

// VitalsPage is a page that shows how things are: while it is open the store is asked.
func (o *Overview) VitalsPage() (leave func()) { return o.open() }
