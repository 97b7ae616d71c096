package explore_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/teststore"
)

// fate is the outcome of a message.
type fate uint8

const (
	arrives    fate = iota
	lost            // it does not arrive, and its sender gets an unknown outcome
	unanswered      // it arrives, and the answer is lost
	slow            // it arrives, and the answer takes its time
	late            // it is given up, and arrives much later
	held            // everything else that can happen happens before it
	forgets         // the store has lost everything before it
	delayed         // it takes a while to arrive
	awaited         // it arrives, and the answer takes a while
)

var fateNames = [...]string{"arrives", "is lost", "is not answered", "is answered late", "arrives late", "is held", "finds everything forgotten", "takes a while", "is answered after a while"}

// Delays of messages: longer than a renewal may take, and longer than a lease lasts.
const (
	ttl      = 3 * time.Second
	slowness = 2 * time.Second
	lateness = 4 * time.Second
	while    = 400 * time.Millisecond // shorter than every timeout of a request
)

var errNoAnswer = errors.New("no answer")

// post delivers the messages of a world, one at a time and each when nothing else can
// happen any more, so that their order is the same each time. plan has the fate of the nth
// message; the rest arrives.
type post struct {
	plan map[int]fate
	// draw returns the fate instead, and pick the next one of n messages; nil unless fates are
	// random.
	draw func(from string) fate
	pick func(n int) int
	// met is called with the fate of a message before its delivery, unless it is nil.
	met  func(from, what string, f fate)
	wake chan struct{}
	end  chan struct{}

	mu    sync.Mutex
	queue []*letter
	held  []*letter
	count int
	log   []string
	began time.Time
	// missing are the senders whose messages have not arrived, or not in time. Where a plan
	// disturbs two messages, they are the senders of both: a waiter may lose its turn if its
	// renewal and its hint are both late.
	missing   []string
	released  map[string]bool // ids of leases whose release has been answered
	returned  []string        // released ids that were granted again (P7)
	forgotten bool            // a store has lost its data
	strays    sync.WaitGroup
}

type letter struct {
	from, what string
	n          int
	fate       chan fate
}

func newPost(plan map[int]fate) *post {
	p := &post{began: time.Now(), plan: plan, released: make(map[string]bool), wake: make(chan struct{}, 1), end: make(chan struct{})}
	go p.deliver()
	return p
}

// send waits for the turn of a message, and returns its fate.
func (p *post) send(from, what string) fate {
	l := &letter{from: from, what: what, fate: make(chan fate, 1)}
	p.mu.Lock()
	p.queue = append(p.queue, l)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	f := <-l.fate
	if p.met != nil {
		p.met(from, what, f)
	}
	return f
}

func (p *post) deliver() {
	for {
		select {
		case <-p.wake:
		case <-p.end:
			return
		}
		for {
			synctest.Wait()
			l, f := p.next()
			if l == nil {
				break
			}
			l.fate <- f
		}
	}
}

// next picks the next message by sender and text, so the order of goroutines has no effect.
func (p *post) next() (*letter, fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > 0 {
		slices.SortStableFunc(p.queue, func(a, b *letter) int {
			return cmp.Or(strings.Compare(a.from, b.from), strings.Compare(a.what, b.what))
		})
		at := 0
		if p.pick != nil {
			at = p.pick(len(p.queue))
		}
		l := p.queue[at]
		p.queue = slices.Delete(p.queue, at, at+1)
		l.n = p.count
		p.count++
		f := p.plan[l.n]
		if p.draw != nil {
			f = p.draw(l.from)
		}
		p.note(l, f)
		if f == lost || f == late || len(p.plan) > 1 && f != arrives {
			p.missing = append(p.missing, l.from)
		}
		if f != held {
			return l, f
		}
		p.held = append(p.held, l)
	}
	if len(p.held) == 0 {
		return nil, 0
	}
	l := p.held[0]
	p.held = p.held[1:]
	return l, arrives
}

// note records a message and its fate.
func (p *post) note(l *letter, f fate) {
	p.log = append(p.log, fmt.Sprintf("%d %v %s: %s %s", l.n, time.Since(p.began).Round(time.Millisecond), l.from, l.what, fateNames[f]))
}

// isOver notes that the release of a lease was answered: it is not granted again.
func (p *post) isOver(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released[id] = true
}

// granted notes that a store has granted a lease.
func (p *post) granted(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released[id] {
		p.returned = append(p.returned, id)
	}
}

// forget makes a store lose its data, as by a restart, unless another one has lost its data before.
func (p *post) forget(table *teststore.Table) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.forgotten {
		p.forgotten = true
		table.Forget()
	}
}

// heard reports whether all messages of these senders have arrived.
func (p *post) heard(from ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(p.missing, func(sender string) bool { return slices.Contains(from, sender) })
}

// stop ends the delivery when late messages have arrived.
func (p *post) stop() {
	p.strays.Wait()
	close(p.end)
}

// after runs f after d.
func (p *post) after(d time.Duration, f func()) {
	p.strays.Go(func() {
		time.Sleep(d)
		f()
	})
}

var plan = flag.String("explore.plan", "", "play this plan only, as in 3=late,7=lost")

// planOf reads a plan.
func planOf(t *testing.T, text string) map[int]fate {
	t.Helper()
	p := make(map[int]fate)
	for word := range strings.SplitSeq(text, ",") {
		n, name, _ := strings.Cut(word, "=")
		var at int
		if _, err := fmt.Sscan(n, &at); err != nil || !slices.Contains(shortNames[:], name) {
			t.Fatalf("%q is not a plan", text)
		}
		p[at] = fate(slices.Index(shortNames[:], name)) //nolint:gosec // few
	}
	return p
}

var shortNames = [...]string{"arrives", "lost", "unanswered", "slow", "late", "held", "forgets", "delayed", "awaited"}

func planText(p map[int]fate) string {
	var words []string
	for _, n := range slices.Sorted(maps.Keys(p)) {
		words = append(words, fmt.Sprintf("%d=%s", n, shortNames[p[n]]))
	}
	return strings.Join(words, ",")
}
