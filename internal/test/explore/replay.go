package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// Stage is a store on which traces are played.
type Stage struct {
	// Store implements all optional parts of a driver.
	Store interface {
		driver.Driver
		driver.Watcher
		driver.Inspector
		driver.Breaker
	}
	// Epoch is the store's clock at the beginning, whole milliseconds in µs.
	Epoch int64
	// SetClock sets the store's clock to the given time after the beginning. It never steps back.
	SetClock func(since time.Duration)
	// Callers is how many calls run at a time, on different keys; 0 means one.
	Callers int
	// Lingers is set for a store that may count a lease for a millisecond longer, while it
	// gets no other request. A trace then ends at the answer that shows it.
	Lingers bool
	// Lingered counts such traces.
	Lingered int

	since  time.Duration // the last value of the clock
	plays  int
	places []string // addresses of the parties
	mu     sync.Mutex
	heard  map[string][]driver.Hint // by id
	hints  int
	wanted int
}

// play is one trace that is played, on a key and with ids of its own.
type play struct {
	*Stage
	trace  Trace
	n      int
	base   time.Duration // clock at the beginning of the trace
	calls  []Call
	tokens []pair
	wrong  string
	left   bool // no longer followed, since it differs from the rule
}

// pair is a token of the rule and of the store: only their order must be the same.
type pair struct{ rule, store int64 }

// Replay plays traces on a store, in parallel, and returns the first answer, hint or
// snapshot that differs from the rule, or an empty text.
func (s *Scenario) Replay(stage *Stage, traces []Trace) string {
	if err := stage.listen(); err != nil {
		return err.Error()
	}
	stage.since = (stage.since + time.Second).Truncate(time.Millisecond)
	var plays []*play
	times := make(map[time.Duration][]*play)
	for _, t := range traces {
		_, calls, _ := s.Describe(t)
		if len(calls) == 0 {
			continue
		}
		stage.plays++
		p := &play{Stage: stage, trace: t, n: stage.plays, base: stage.since, calls: calls}
		plays = append(plays, p)
		for i, c := range calls {
			if i == 0 || c.Now != calls[i-1].Now {
				times[c.Now] = append(times[c.Now], p)
			}
			stage.wanted += copies(c.Wakes)
		}
	}
	base := stage.since
	for _, now := range sortedKeys(times) {
		stage.since = base + now
		stage.SetClock(stage.since)
		each(stage.Callers, times[now], func(p *play) { p.at(now) })
	}
	stage.await()
	for _, p := range plays {
		p.compareHints()
		if p.left {
			stage.Lingered++
		}
		if p.wrong != "" {
			text, _, _ := s.Describe(p.trace)
			return fmt.Sprintf("%s\n%s\nthe trace is %s", p.wrong, strings.Join(text, "\n"), p.trace)
		}
	}
	return ""
}

func sortedKeys[V any](m map[time.Duration]V) (keys []time.Duration) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// each calls f for all plays, with the given number of goroutines.
func each(callers int, plays []*play, f func(*play)) {
	var wg sync.WaitGroup
	n := max(callers, 1)
	for i := range n {
		wg.Go(func() {
			for at := i; at < len(plays); at += n {
				f(plays[at])
			}
		})
	}
	wg.Wait()
}

// listen opens an address for each party.
func (g *Stage) listen() error {
	if g.places != nil {
		return nil
	}
	g.heard = make(map[string][]driver.Hint)
	for range addresses {
		up := make(chan struct{}, 1)
		sub, err := g.Store.Watch(func(h driver.Hint) {
			if h.Kind == driver.HintResync {
				select {
				case up <- struct{}{}:
				default:
				}
				return
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			g.heard[about(h, h.ID)] = append(g.heard[about(h, h.ID)], h)
			g.hints++
		})
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		for sub.Address() == "" {
			<-up
		}
		g.places = append(g.places, sub.Address())
	}
	return nil
}

// copies returns how often hints are received, by all subscriptions together.
func copies(wakes []room.Wake) (n int) {
	for _, w := range wakes {
		if n++; w.Address == room.Everybody {
			n += len(addresses) - 1
		}
	}
	return n
}

// about returns the name under which a hint about a lease is kept. Hints to all addresses
// are kept apart from hints to one.
func about(h driver.Hint, lease string) string {
	if h.Kind == driver.HintBroken {
		return lease + ", broken"
	}
	return lease
}

// await waits until all hints that were sent have been received.
func (g *Stage) await() {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		g.mu.Lock()
		all := g.hints >= g.wanted
		g.mu.Unlock()
		if all {
			return
		}
	}
}

// at makes the calls of a moment.
func (p *play) at(now time.Duration) {
	for i := range p.calls {
		if p.calls[i].Now != now || p.wrong != "" || p.left {
			continue
		}
		if p.call(&p.calls[i], i == len(p.calls)-1); p.left {
			p.expectNoMore(p.calls[i:])
		}
	}
}

// expectNoMore marks calls that the store will not get, or that will differ from the rule.
func (p *play) expectNoMore(calls []Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range calls {
		p.wanted -= copies(c.Wakes)
	}
}

func (p *play) fail(c *Call, format string, args ...any) {
	if p.wrong == "" {
		p.wrong = fmt.Sprintf("at %v %s %s: ", c.Now, c.Op, cmp.Or(c.Req.ID, c.Ref.ID)) + fmt.Sprintf(format, args...)
	}
}

func (p *play) key() string { return fmt.Sprintf("k%d", p.n) }

func (p *play) name(id string) string { return fmt.Sprintf("%s.%d", id, p.n) }

func (p *play) address(of string) string {
	if of == "" {
		return ""
	}
	return p.places[slices.Index(addresses[:], of)]
}

// clock returns the store's clock at a time of the trace, in µs.
func (p *play) clock(now time.Duration) int64 { return p.Epoch + (p.base + now).Microseconds() }

// call makes one call, and compares the answer and, after the last one, the snapshot.
func (p *play) call(c *Call, last bool) {
	ctx := context.Background()
	var got driver.Reply
	var err error
	switch c.Op {
	case "Acquire":
		req := c.Req
		req.Key, req.ID, req.HintAddress = p.key(), p.name(req.ID), p.address(req.HintAddress)
		if req.MinToken > 0 {
			req.MinToken += p.clock(0) - epoch
		}
		got, err = p.Store.Acquire(ctx, req)
		if got.State == driver.Granted && got.Token <= req.MinToken && c.Reply.Token > c.Req.MinToken {
			p.fail(c, "token %d, and the minimum is %d", got.Token, req.MinToken)
		}
	case "Renew":
		ref := p.ref(c)
		p.Store.Renew(ctx, []driver.Ref{ref}, func(_ int, r driver.Reply, e error) { got, err = r, e })
	case "Release":
		got, err = p.Store.Release(ctx, p.ref(c))
	case "Break":
		got, err = p.Store.Break(ctx, p.key(), p.name(c.Ref.ID), "because")
	}
	p.compare(c, got, err)
	if p.wrong != "" && c.Over && p.Lingers && err == nil {
		p.wrong, p.left = "", true
	}
	if !last || p.wrong != "" || p.left {
		return
	}
	snap, err := p.Store.Inspect(ctx, p.key())
	if err != nil {
		p.fail(c, "inspect: %v", err)
		return
	}
	p.comparePicture(c, snap)
}

func (p *play) ref(c *Call) driver.Ref {
	ref := c.Ref
	ref.Key, ref.ID, ref.HintAddress = p.key(), p.name(ref.ID), p.address(ref.HintAddress)
	if ref.Token > 0 {
		for _, t := range p.tokens {
			if t.rule == ref.Token-raisedBy {
				ref.Token = t.store + raisedBy
			}
		}
	}
	return ref
}

func (p *play) compare(c *Call, got driver.Reply, err error) {
	want := c.Reply
	switch {
	case c.Err != nil && err == nil:
		p.fail(c, "answered %+v, want %v", got, c.Err)
	case c.Err != nil:
		for _, kind := range []error{driver.ErrInvalid, driver.ErrMismatch} {
			if errors.Is(err, kind) != errors.Is(c.Err, kind) {
				p.fail(c, "error %v, want %v", err, c.Err)
			}
		}
		return
	case err != nil:
		p.fail(c, "error %v", err)
	}
	if got.Clock > 0 && got.Clock.Microseconds() != p.clock(c.Now) {
		p.fail(c, "clock %v, want %d µs", got.Clock, p.clock(c.Now))
	}
	same := got.State == want.State && p.sameToken(want.Token, got.Token) && got.Holds == want.Holds && got.Places == want.Places && got.Wanted == want.Wanted && got.Position == want.Position &&
		got.RetryAfter == want.RetryAfter && got.Broken == want.Broken && got.Reason == want.Reason && got.Replayed == want.Replayed &&
		len(got.Holders) == len(want.Holders)
	for i := range want.Holders {
		// If several leases last equally long, any of them may be shown.
		if same && !p.sameHolder(want.Holders[i], got.Holders[i]) && got.Holders[i].Remaining != want.Holders[i].Remaining {
			same = false
		}
	}
	if !same {
		p.fail(c, "\n got %+v\nwant %+v", got, want)
	}
}

// sameToken reports whether a token of the store can stand for one of the rule: both are 0,
// or both have the same order relative to all earlier tokens.
func (p *play) sameToken(rule, store int64) bool {
	if rule == 0 || store == 0 {
		return rule == store
	}
	at := sort.Search(len(p.tokens), func(i int) bool { return p.tokens[i].rule >= rule })
	if at < len(p.tokens) && p.tokens[at].rule == rule {
		return p.tokens[at].store == store
	}
	if at > 0 && p.tokens[at-1].store >= store || at < len(p.tokens) && p.tokens[at].store <= store {
		return false
	}
	p.tokens = slices.Insert(p.tokens, at, pair{rule, store})
	return true
}

func (p *play) sameHolder(rule, store driver.Holder) bool {
	return p.name(rule.ID) == store.ID && rule.Owner == store.Owner && rule.Mode == store.Mode && rule.Weight == store.Weight && rule.Places == store.Places &&
		p.sameToken(rule.Token, store.Token) && rule.Since.Equal(store.Since) && rule.Remaining == store.Remaining &&
		rule.Confirmed == store.Confirmed && !store.Foreign
}

func (p *play) sameWaiter(rule, store driver.Waiter) bool {
	return p.name(rule.ID) == store.ID && rule.Owner == store.Owner && rule.Mode == store.Mode && rule.Weight == store.Weight &&
		rule.Position == store.Position && rule.Since.Equal(store.Since) && rule.Remaining == store.Remaining
}

func (p *play) comparePicture(c *Call, got driver.Snapshot) {
	want := c.Look
	byID := func(a, b driver.Holder) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(got.Holders, byID)
	slices.SortFunc(want.Holders, byID)
	if got.Key != p.key() || !p.sameToken(want.Token, got.Token) && got.Token != 0 || got.Limit != want.Limit || got.Closed != want.Closed ||
		!slices.EqualFunc(want.Holders, got.Holders, p.sameHolder) || !slices.EqualFunc(want.Waiters, got.Waiters, p.sameWaiter) {
		p.fail(c, "the picture afterwards is\n got %+v\nwant %+v", got, want)
	}
}

// compareHints compares the received hints of each lease.
func (p *play) compareHints() {
	if p.wrong != "" || p.left {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	left := make(map[string]int)
	for i := range p.calls {
		c := &p.calls[i]
		for _, w := range c.Wakes {
			name := about(w.Hint, p.name(w.Hint.ID))
			for range copies([]room.Wake{w}) {
				heard := p.heard[name]
				if left[name] >= len(heard) {
					p.fail(c, "%s did not receive %s", w.Hint.ID, hintNames[w.Hint.Kind])
					return
				}
				if got := heard[left[name]]; !p.sameHint(w.Hint, got, c.Now) {
					p.fail(c, "the hint is\n got %+v\nwant %+v", got, w.Hint)
					return
				}
				left[name]++
			}
		}
	}
	for name, n := range left {
		if len(p.heard[name]) > n {
			p.wrong = fmt.Sprintf("%s received too many hints: %+v", name, p.heard[name][n:])
		}
	}
}

func (p *play) sameHint(rule, store driver.Hint, now time.Duration) bool {
	return rule.Kind == store.Kind && (rule.Key != "") == (store.Key == p.key()) && p.sameToken(rule.Token, store.Token) && rule.ConfirmWindow == store.ConfirmWindow &&
		rule.RetryAfter == store.RetryAfter && rule.Reason == store.Reason &&
		(rule.Clock == 0 && store.Clock == 0 || store.Clock.Microseconds() == p.clock(now))
}
