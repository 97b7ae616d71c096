package overview

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/wire"
)

// Query is what a page wants to see.
type Query struct {
	Prefix  string // of the names
	Search  string // in names and owners, in whatever case
	Sort    string // a column: name, held, waiters, wait, lease, flags
	Down    bool   // the other way round
	Flagged bool   // only what is odd
	Offset  int
	Limit   int // at most MaxRows
}

// Reader may see some locks. A Reader that can be compared shares its views with those
// that are equal.
type Reader interface {
	MayRead(name string) bool
}

// Row is one lock of a table. Times are as of the look, which is AgoMs old.
type Row struct {
	Key     string        `json:"key"`
	Kind    string        `json:"kind"` // mutex, read-write, semaphore; unknown before the first look
	State   string        `json:"state"`
	Limit   int           `json:"limit"`
	Used    int           `json:"used"`
	Token   int64         `json:"token"`
	Holders []wire.Holder `json:"holders"`
	More    int           `json:"moreHolders"`
	Waiters int           `json:"waiters"`
	// Wait is the longest wait in the queue, Held the longest hold.
	Wait      wire.Millis `json:"waitMs"`
	Held      wire.Millis `json:"heldMs"`
	Remaining wire.Millis `json:"remainingMs"`
	TTL       wire.Millis `json:"ttlMs"`
	Renewals  int         `json:"renewals"`
	Ago       wire.Millis `json:"agoMs"`
	Failed    bool        `json:"failed"`
	Flags     []Flag      `json:"flags"`
}

// Branch is what there is below one more segment of names.
type Branch struct {
	Prefix  string `json:"prefix"`
	Locks   int    `json:"locks"`
	Waiters int    `json:"waiters"`
	Flagged int    `json:"flagged"`
}

// View is what a page shows of many locks.
type View struct {
	// Total fit the query; Locks, Held, Waiting and Flagged are of all that may be read.
	Total   int `json:"total"`
	Locks   int `json:"locks"`
	Waiting int `json:"waiting"`
	Flagged int `json:"flagged"`
	// Looked is how many of Locks have been looked at.
	Looked int `json:"looked"`
	// Listed tells that the names of all locks are known, Partial that there are more
	// than are kept, and Failing that the store does not answer.
	Listed  bool `json:"listed"`
	Partial bool `json:"partial"`
	Failing bool `json:"failing"`
	// Store is what is odd about all locks.
	Store []Flag   `json:"store"`
	Keys  []string `json:"keys"`
	// Rows are those of Keys: in a stream, those that have changed.
	Rows     []Row    `json:"rows"`
	Branches []Branch `json:"branches"`
	// Principal is who looks, empty if nobody need be known; Mode is read or full.
	Principal string `json:"principal"`
	Mode      string `json:"mode"`
}

// viewKey names a view. Readers that differ have views of their own.
type viewKey struct {
	Query
	reader any
}

// view is one that some pages look at.
type view struct {
	query  Query
	reader Reader
	pages  int
	rows   []*entry
	sum    View // without Keys and Rows
	made   uint64
	at     time.Time
	took   time.Duration
	next   chan struct{} // closed when it is made anew
	ready  bool
}

// Page looks at a view.
type Page struct {
	o     *Overview
	v     *view
	key   viewKey
	leave func()
	told       // what was returned
	prior told // the same without what was returned last
}

// told is what a page has returned.
type told struct {
	sent  map[string]uint64 // the version of each row that was sent
	last  View
	fresh bool // nothing yet
}

// maxBranches bounds the branches of a view.
const maxBranches = 200

// Open opens a page. The caller closes it.
func (o *Overview) Open(q Query, r Reader) *Page {
	q.Limit = min(max(q.Limit, 1), MaxRows)
	q.Search = strings.ToLower(q.Search)
	p := &Page{o: o, leave: o.open(), told: told{fresh: true}}
	o.mu.Lock()
	defer o.mu.Unlock()
	p.look(keyOf(q, r), r)
	return p
}

func keyOf(q Query, r Reader) viewKey {
	key := viewKey{Query: q, reader: new(int)}
	if reflect.ValueOf(r).Comparable() {
		key.reader = r
	}
	return key
}

// look has the page look at a view. The caller holds the overview's mu.
func (p *Page) look(key viewKey, r Reader) {
	v := p.o.views[key]
	if v == nil {
		v = &view{query: key.Query, reader: r, next: make(chan struct{})}
		p.o.views[key] = v
	}
	v.pages++
	p.v, p.key = v, key
}

// part has the page look at no view. The caller holds the overview's mu.
func (p *Page) part() {
	if p.v.pages--; p.v.pages == 0 {
		delete(p.o.views, p.key)
	}
}

// Close ends the interest of the page.
func (p *Page) Close() {
	p.o.mu.Lock()
	p.part()
	p.o.mu.Unlock()
	p.leave()
}

// As has the page go on for another reader, and reports whether that one is unequal to
// the former. Nothing that was made for the former is returned any more.
func (p *Page) As(r Reader) bool {
	p.o.mu.Lock()
	defer p.o.mu.Unlock()
	key := keyOf(p.key.Query, r)
	if key == p.key {
		return false
	}
	ready := p.v.ready
	p.part()
	p.look(key, r)
	if ready && !p.v.ready {
		p.v.renew(p.o, time.Now())
	}
	return true
}

// Again takes back what was returned last, which nobody has seen, and returns what is there
// instead, unless that is nothing.
func (p *Page) Again() (View, bool) {
	p.o.mu.Lock()
	defer p.o.mu.Unlock()
	p.told = p.prior
	return p.take()
}

// Next waits until there is something that was not returned before. What is there when
// ctx ends is returned.
func (p *Page) Next(ctx context.Context) (View, error) {
	for {
		over := ctx.Err() // before the look: the end of ctx takes nothing away that is there by then
		p.o.mu.Lock()
		now, changed := p.take()
		next := p.v.next
		p.o.mu.Unlock()
		if changed {
			return now, nil
		}
		if over != nil {
			return View{}, over
		}
		select {
		case <-next:
		case <-ctx.Done():
		}
	}
}

// Whole waits until the names of all locks are known and those of the page have been
// looked at, but not for long.
func (p *Page) Whole(ctx context.Context) View {
	var all View
	rows := make(map[string]Row)
	for {
		v, err := p.Next(ctx)
		if err != nil {
			break
		}
		all = v
		for _, r := range v.Rows {
			rows[r.Key] = r
		}
		if v.Listed && !slices.ContainsFunc(v.Keys, func(k string) bool { return rows[k].Kind == "unknown" }) {
			break
		}
	}
	all.Rows = []Row{}
	for _, key := range all.Keys {
		if r, ok := rows[key]; ok {
			all.Rows = append(all.Rows, r)
		}
	}
	return all
}

// take returns the view as it is, with the rows that have changed. The caller holds
// the overview's mu.
func (p *Page) take() (View, bool) {
	if !p.v.ready {
		return View{}, false
	}
	now := p.v.sum
	now.Keys, now.Rows = make([]string, 0, len(p.v.rows)), []Row{}
	at := time.Now()
	sent := make(map[string]uint64, len(p.v.rows))
	for _, e := range p.v.rows {
		now.Keys = append(now.Keys, e.key)
		if p.sent[e.key] != e.version || p.fresh {
			now.Rows = append(now.Rows, e.row(at))
		}
		sent[e.key] = e.version
	}
	changed := p.fresh || len(now.Rows) > 0 || !sameView(&now, &p.last)
	p.prior, p.told = p.told, told{sent, now, false}
	return now, changed
}

func sameView(a, b *View) bool {
	return a.Total == b.Total && a.Locks == b.Locks && a.Waiting == b.Waiting && a.Flagged == b.Flagged &&
		a.Looked == b.Looked && a.Listed == b.Listed && a.Partial == b.Partial && a.Failing == b.Failing &&
		slices.Equal(a.Store, b.Store) && slices.Equal(a.Keys, b.Keys) && slices.Equal(a.Branches, b.Branches)
}

// refresh makes the views anew that may have changed, each as often as is cheap.
func (o *Overview) refresh() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for _, v := range o.views {
		if v.ready && (v.made == o.changes || now.Sub(v.at) < max(20*v.took, 300*time.Millisecond)) {
			continue
		}
		v.renew(o, now)
	}
	for key := range o.followed {
		if e := o.table[key]; e != nil && !e.at.IsZero() {
			noted := o.log.noted(key)
			for f := range o.followers[key] {
				f.tell(e.version, noted)
			}
		}
	}
}

// renew makes the view anew, and tells those who wait. The caller holds the overview's mu.
func (v *view) renew(o *Overview, now time.Time) {
	v.make(o)
	v.at, v.took, v.made = now, time.Since(now), o.changes
	v.ready = true
	close(v.next)
	v.next = make(chan struct{})
}

// make chooses and sorts the rows. The caller holds the overview's mu.
func (v *view) make(o *Overview) {
	sum := View{Listed: o.listed, Partial: o.partial, Failing: o.failing, Store: o.StoreFlags(v.reader.MayRead("")), Branches: []Branch{}}
	branches := make(map[string]*Branch)
	fit := make([]*entry, 0, len(o.table))
	for _, e := range o.table {
		if !v.reader.MayRead(e.key) || !e.at.IsZero() && len(e.snap.Holders) == 0 && len(e.snap.Waiters) == 0 && e.snap.Closed <= 0 {
			continue
		}
		sum.Locks++
		sum.Waiting += len(e.snap.Waiters)
		if !e.at.IsZero() {
			sum.Looked++
		}
		if len(e.flags) > 0 {
			sum.Flagged++
		}
		if !strings.HasPrefix(e.key, v.query.Prefix) {
			continue
		}
		branch(branches, v.query.Prefix, e)
		if (!v.query.Flagged || len(e.flags) > 0) && e.contains(v.query.Search) {
			fit = append(fit, e)
		}
	}
	for _, b := range branches {
		sum.Branches = append(sum.Branches, *b)
	}
	slices.SortFunc(sum.Branches, func(a, b Branch) int { return strings.Compare(a.Prefix, b.Prefix) })
	sum.Branches = sum.Branches[:min(len(sum.Branches), maxBranches)]
	by := order(v.query.Sort)
	slices.SortFunc(fit, func(a, b *entry) int {
		way := by(a, b)
		if v.query.Down {
			way = -way
		}
		return cmp.Or(way, strings.Compare(a.key, b.key))
	})
	sum.Total = len(fit)
	low := min(v.query.Offset, len(fit))
	v.rows = slices.Clone(fit[low:min(low+v.query.Limit, len(fit))])
	v.sum = sum
}

// branch counts a lock below the next segment of its name.
func branch(all map[string]*Branch, prefix string, e *entry) {
	rest := e.key[len(prefix):]
	i := strings.IndexAny(rest, "/:")
	if i < 0 || i == len(rest)-1 {
		return
	}
	name := prefix + rest[:i+1]
	b := all[name]
	if b == nil {
		if len(all) >= 10*maxBranches {
			return
		}
		b = &Branch{Prefix: name}
		all[name] = b
	}
	b.Locks++
	b.Waiters += len(e.snap.Waiters)
	if len(e.flags) > 0 {
		b.Flagged++
	}
}

// rowHolders is how many holders a row names.
const rowHolders = 3

// row is what a table shows of the lock.
func (e *entry) row(now time.Time) Row {
	r := Row{
		Key: e.key, Kind: e.kind(), State: "unknown", Limit: e.snap.Limit, Token: e.snap.Token,
		Holders: []wire.Holder{}, Waiters: len(e.snap.Waiters), Failed: e.err, Flags: e.flags,
	}
	if r.Flags == nil {
		r.Flags = []Flag{}
	}
	if e.at.IsZero() {
		return r
	}
	short := e.snap
	for _, h := range short.Holders {
		r.Used += max(h.Weight, 1)
		r.TTL = max(r.TTL, wire.Floor(e.leases[h.ID].ttl))
		r.Renewals += e.leases[h.ID].renewals
	}
	r.More = max(len(short.Holders)-rowHolders, 0)
	short.Holders, short.Waiters = short.Holders[:min(len(short.Holders), rowHolders)], nil
	l := wire.LockOf(short)
	for i := range l.Holders {
		l.Holders[i].Labels = nil
	}
	r.State, r.Holders = l.State, l.Holders
	r.Remaining = wire.Floor(max(e.remaining(), 0))
	r.Held, r.Wait = ageAt(e.held(), e.at), ageAt(e.waits(), e.at)
	r.Ago = wire.Floor(now.Sub(e.at))
	return r
}

// ageAt is how old something was at a time, as well as two clocks can tell.
func ageAt(since, at time.Time) wire.Millis {
	if since.IsZero() {
		return 0
	}
	return wire.Floor(max(at.Sub(since), 0))
}
