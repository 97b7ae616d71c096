package explore_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
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
	missing  []string
	released map[string]bool // ids of leases whose release has been answered
	returned []string        // released ids that were granted again (P7)
	strays   sync.WaitGroup
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

// mailed is a driver that is called through a post.
type mailed struct {
	*post
	from string
	ids  bool // messages name their leases

	mu     sync.Mutex
	store  driver.Driver
	forget func() driver.Driver // returns an empty store; nil if this one does not forget
}

func (m *mailed) inner() driver.Driver {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.store
}

// call sends one message about a lease.
func (m *mailed) call(ctx context.Context, what, id string, f func(context.Context) error) error {
	if m.ids {
		what += " " + id
	}
	switch fate := m.send(m.from, what); fate {
	case lost:
		return errNoAnswer
	case late:
		m.after(lateness, func() { _ = f(context.Background()) })
		return errNoAnswer
	case unanswered:
		_ = f(context.Background())
		return errNoAnswer
	case slow:
		err := f(context.Background())
		select {
		case <-time.After(slowness):
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	case delayed, awaited:
		done := make(chan error, 1)
		there, back := while, time.Duration(0)
		if fate == awaited {
			there, back = back, there
		}
		m.after(there, func() {
			err := f(context.Background())
			time.Sleep(back)
			done <- err
		})
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	case forgets:
		if m.forget != nil {
			m.mu.Lock()
			m.store = m.forget()
			m.mu.Unlock()
		}
		fallthrough
	default:
		return f(ctx)
	}
}

func (m *mailed) Acquire(ctx context.Context, req driver.Request) (reply driver.Reply, err error) {
	var got driver.Reply
	err = m.call(ctx, "acquire", req.ID, func(ctx context.Context) (err error) {
		r, err := m.inner().Acquire(ctx, req)
		if m.mu.Lock(); err == nil {
			got = r
		}
		m.mu.Unlock()
		if err == nil && r.State == driver.Granted {
			m.granted(req.ID)
		}
		return err
	})
	if err != nil {
		return driver.Reply{}, err
	}
	return got, nil
}

func (m *mailed) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	for i, ref := range refs {
		var got driver.Reply
		err := m.call(ctx, "renew", ref.ID, func(ctx context.Context) (err error) {
			m.inner().Renew(ctx, []driver.Ref{ref}, func(_ int, r driver.Reply, e error) {
				m.mu.Lock()
				defer m.mu.Unlock()
				got, err = r, e
			})
			return err
		})
		if err != nil { // it may be answered yet
			each(i, driver.Reply{}, err)
		} else {
			each(i, got, nil)
		}
	}
}

func (m *mailed) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	var got driver.Reply
	err := m.call(ctx, "release", ref.ID, func(ctx context.Context) error {
		r, err := m.inner().Release(ctx, ref)
		m.mu.Lock()
		defer m.mu.Unlock()
		got = r
		return err
	})
	if err != nil {
		return driver.Reply{}, err
	}
	return got, nil
}

// Close leaves the store open for late messages.
func (m *mailed) Close() error { return nil }

// Watch implements [driver.Watcher]. Hints are sent by the post too.
func (m *mailed) Watch(hear func(driver.Hint)) (driver.Subscription, error) {
	var mu sync.Mutex // one at a time
	tell := func(h driver.Hint) {
		mu.Lock()
		defer mu.Unlock()
		hear(h)
	}
	return m.inner().(driver.Watcher).Watch(func(h driver.Hint) {
		m.strays.Go(func() { // a store does not wait
			switch m.send(m.from, "hint") {
			case lost, unanswered:
			case slow:
				m.after(slowness, func() { tell(h) })
			case late:
				m.after(lateness, func() { tell(h) })
			default:
				tell(h)
			}
		})
	})
}

func (m *mailed) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	return m.inner().(driver.Inspector).Inspect(ctx, key)
}

func (m *mailed) List(ctx context.Context, prefix, cursor string) ([]string, string, error) {
	return m.inner().(driver.Inspector).List(ctx, prefix, cursor)
}

func (m *mailed) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	return m.inner().(driver.Breaker).Break(ctx, key, id, reason)
}

func (m *mailed) Marked(ctx context.Context) (mark driver.Mark, ok bool, err error) {
	type marked struct {
		driver.Mark
		ok bool
	}
	got, err := guarded(ctx, m, "look at the mark", func(ctx context.Context) (v marked, err error) {
		v.Mark, v.ok, err = m.inner().(driver.Marker).Marked(ctx)
		return v, err
	})
	return got.Mark, got.ok, err
}

func (m *mailed) Reserve(ctx context.Context, by string, life time.Duration) (bool, error) {
	return guarded(ctx, m, "reserve", func(ctx context.Context) (bool, error) {
		return m.inner().(driver.Marker).Reserve(ctx, by, life)
	})
}

func (m *mailed) Mark(ctx context.Context, mark driver.Mark, by string) error {
	_, err := guarded(ctx, m, "mark", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, m.inner().(driver.Marker).Mark(ctx, mark, by)
	})
	return err
}

// guarded sends a message about the mark of a node.
func guarded[T any](ctx context.Context, m *mailed, what string, f func(context.Context) (T, error)) (T, error) {
	var got T
	err := m.call(ctx, what, "", func(ctx context.Context) error {
		v, err := f(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		got = v
		return err
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		var zero T
		return zero, err
	}
	return got, nil
}

// mailedHTTP sends requests to replicas in turn, two to each, by way of a post.
type mailedHTTP struct {
	*post
	from     string
	replicas []http.RoundTripper

	mu sync.Mutex
	n  int
}

func (m *mailedHTTP) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/events") {
		return m.replicas[0].RoundTrip(req) // a stream; its hints are sent by the post of the store
	}
	fate := m.send(m.from, req.Method)
	m.mu.Lock()
	to := m.replicas[m.n/2%len(m.replicas)] // two go to each, so that a repetition meets both cases
	m.n++
	m.mu.Unlock()
	body, err := bodyOf(req)
	if err != nil {
		return nil, err
	}
	again := func() {
		copied := req.Clone(context.Background())
		copied.Body = io.NopCloser(strings.NewReader(body))
		if resp, err := to.RoundTrip(copied); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	switch fate {
	case lost:
		return nil, errNoAnswer
	case late:
		m.after(lateness, again)
		return nil, errNoAnswer
	case unanswered:
		again()
		return nil, errNoAnswer
	case slow:
		again()
		select {
		case <-time.After(slowness):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
		return nil, errNoAnswer
	}
	req.Body = io.NopCloser(strings.NewReader(body))
	return to.RoundTrip(req)
}

func bodyOf(req *http.Request) (string, error) {
	if req.Body == nil {
		return "", nil
	}
	defer req.Body.Close()
	body, err := io.ReadAll(req.Body)
	return string(body), err
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
