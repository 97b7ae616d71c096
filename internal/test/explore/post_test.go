package explore_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
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

// Delays of messages: longer than a request may take, and longer than most leases last.
const (
	slowness = 2 * time.Second
	lateness = 4 * time.Second
	while    = 400 * time.Millisecond // shorter than every timeout of a request
)

var errNoAnswer = errors.New("no answer")

// post delivers the messages of a play, one at a time and each when nothing else can happen any
// more, so that their order is the same each time. While there is no draw, all messages arrive.
type post struct {
	draw func(from string) fate // returns the fate of a message
	pick func(n int) int        // picks the next of n messages
	// met is called with the fate of a message before its delivery.
	met  func(from, what string, f fate)
	wake chan struct{}
	end  chan struct{}

	mu        sync.Mutex
	queue     []*letter
	held      []*letter
	forgotten bool // a node has lost its data
	strays    sync.WaitGroup
}

type letter struct {
	from, what string
	fate       chan fate
}

func newPost() *post {
	p := &post{wake: make(chan struct{}, 1), end: make(chan struct{})}
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
		f := arrives
		if p.draw != nil {
			f = p.draw(l.from)
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

// forget makes a node lose its data, as by a restart, unless another one has lost its data before.
func (p *post) forget(table *teststore.Table) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.forgotten {
		p.forgotten = true
		table.Forget()
	}
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

// sender sends the messages of one process to a node, through a post.
type sender struct {
	*post
	from  string
	table *teststore.Table // which the node may forget
}

// mail sends a message. f is its effect.
func (s sender) mail(ctx context.Context, what string, f func(context.Context) error) error {
	done := make(chan error, 1)
	arrive := func() { done <- f(context.Background()) }
	switch s.send(s.from, what) {
	case lost:
		return errNoAnswer
	case late:
		s.after(lateness, arrive)
		return errNoAnswer
	case unanswered:
		arrive()
		return errNoAnswer
	case slow:
		arrive()
		select {
		case <-time.After(slowness):
		case <-ctx.Done():
			return ctx.Err()
		}
	case delayed:
		s.after(while, arrive)
	case awaited:
		s.after(0, func() {
			err := f(context.Background())
			time.Sleep(while)
			done <- err
		})
	case forgets:
		s.forget(s.table)
		return f(ctx)
	default:
		return f(ctx)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// recorder is a node that reports its grants, also to requests that are late.
type recorder struct {
	*roomdriver.Driver
	granted func(driver.Request, driver.Reply)
}

func (r recorder) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	reply, err := r.Driver.Acquire(ctx, req)
	if err == nil && reply.State == driver.Granted {
		r.granted(req, reply)
	}
	return reply, err
}

// reach returns a node as a process reaches it through the post. The node stays open for late messages
// until the end of the test.
func (p *post) reach(t *testing.T, from string, table *teststore.Table, granted func(driver.Request, driver.Reply)) driver.Driver {
	node, s := table.Join(), sender{p, from, table}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	d := intercept.New(recorder{node, granted}, func(ctx context.Context, m *intercept.Message, send func(context.Context) error) error {
		what := string(m.Verb)
		switch m.Verb {
		case intercept.Close:
			return nil
		case intercept.Inspect, intercept.List, intercept.Break:
			return send(ctx)
		}
		if !m.Verb.OfMark() {
			what += " " + m.ID()
		}
		return s.mail(ctx, what, send)
	})
	d.Split = true
	return d
}
