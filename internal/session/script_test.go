package session

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

const ms = time.Millisecond

var (
	// errReset is the error of a request with an unknown outcome.
	errReset = errors.New("connection reset")
	// errSilent makes a script leave a renewal without an answer.
	errSilent = errors.New("no answer")
)

// script is a store whose answers a test defines, and which records its questions. n counts the
// questions of a verb from 1. A verb without an answer grants, renews and releases.
type script struct {
	acquire func(ctx context.Context, n int, req *driver.Request) (driver.Reply, error)
	renew   func(ctx context.Context, n int, ref *driver.Ref) (driver.Reply, error)
	release func(ctx context.Context, n int, ref *driver.Ref) (driver.Reply, error)

	start  time.Time
	lines  atomic.Int32 // of the session's log
	mu     sync.Mutex
	asked  []question
	counts map[string]int // of each verb
}

// locked returns the result of f, called under a lock.
func locked[T any](mu sync.Locker, f func() T) T {
	mu.Lock()
	defer mu.Unlock()
	return f()
}

// forget makes the store count from 1 again.
func (d *script) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked, d.counts = nil, nil
}

// question is a request to the store.
type question struct {
	verb  string
	at    time.Duration // since the test began
	limit time.Duration // of its context; 0 without a deadline
	req   driver.Request
	ref   driver.Ref
}

func (d *script) note(ctx context.Context, q question) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	q.at = time.Since(d.start)
	if end, ok := ctx.Deadline(); ok {
		q.limit = time.Until(end)
	}
	d.asked = append(d.asked, q)
	if d.counts == nil {
		d.counts = make(map[string]int)
	}
	d.counts[q.verb]++
	return d.counts[q.verb]
}

// of returns the questions of a verb.
func (d *script) of(verb string) []question {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.asked), func(q question) bool { return q.verb != verb })
}

// times returns the times of the questions of a verb.
func (d *script) times(verb string) (all []time.Duration) {
	for _, q := range d.of(verb) {
		all = append(all, q.at)
	}
	return all
}

// limits returns the limits of the questions of a verb.
func (d *script) limits(verb string) (all []time.Duration) {
	for _, q := range d.of(verb) {
		all = append(all, q.limit)
	}
	return all
}

// asksAt checks the times of the questions of a verb, and the limits of the first. Nil is not checked.
func (d *script) asksAt(t *testing.T, verb string, times, limits []time.Duration) {
	t.Helper()
	if got := d.times(verb); times != nil && !slices.Equal(got, times) {
		t.Errorf("asked at %v, want %v", got, times)
	}
	if got := d.limits(verb); !slices.Equal(got[:min(len(got), len(limits))], limits) {
		t.Errorf("for at most %v, want %v", got, limits)
	}
}

func (d *script) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	n := d.note(ctx, question{verb: "acquire", req: req})
	if d.acquire == nil {
		return driver.Reply{State: driver.Granted, Token: int64(n)}, nil
	}
	return d.acquire(ctx, n, &req)
}

func (d *script) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	for i, ref := range refs {
		n := d.note(ctx, question{verb: "renew", ref: ref})
		if d.renew == nil {
			each(i, driver.Reply{State: driver.Granted}, nil)
			continue
		}
		if reply, err := d.renew(ctx, n, &ref); err != errSilent { //nolint:errorlint // it is the test's own
			each(i, reply, err)
		}
	}
}

func (d *script) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	n := d.note(ctx, question{verb: "release", ref: ref})
	if d.release == nil {
		return driver.Reply{State: driver.Released}, nil
	}
	return d.release(ctx, n, &ref)
}

func (d *script) Close() error {
	d.note(context.Background(), question{verb: "close"})
	return nil
}

// hang waits until ctx ends.
func hang(ctx context.Context) (driver.Reply, error) {
	<-ctx.Done()
	return driver.Reply{}, ctx.Err()
}

// audible is a script with subscriptions. A test defines their outcomes.
type audible struct {
	script
	slow    time.Duration // the opening of each
	fail    []error       // of one after the other; later ones succeed
	address string
	tell    func(driver.Hint)
	opened  []time.Duration
	closed  int
}

func (d *audible) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	d.mu.Lock()
	d.opened, d.tell = append(d.opened, time.Since(d.start)), f
	n := len(d.opened)
	d.mu.Unlock()
	time.Sleep(d.slow)
	if n <= len(d.fail) {
		return nil, d.fail[n-1]
	}
	return (*heard)(d), nil
}

// says sends a hint to the subscriber.
func (d *audible) says(h driver.Hint) { locked(&d.mu, func() func(driver.Hint) { return d.tell })(h) }

// subscriptions returns when they were opened, and how many are closed.
func (d *audible) subscriptions() (opened []time.Duration, closed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.opened), d.closed
}

// at sets the address of subscriptions from now on.
func (d *audible) at(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.address = address
}

// heard is the subscription of an audible store.
type heard audible

func (d *heard) Address() string { return locked(&d.mu, func() string { return d.address }) }

func (d *heard) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed++
	return nil
}

// usual returns the default terms of the tests.
func usual() *Terms {
	return &Terms{
		TTL: 30 * time.Second, RenewFraction: 1.0 / 3, Drift: 0.01, ReleaseTimeout: 5 * time.Second,
		MaxOutage: 30 * time.Second, Log: slog.New(slog.DiscardHandler),
	}
}

func (t *Terms) request() *driver.Request { return &driver.Request{Key: "k", ID: "a", TTL: t.TTL} }

// begin counts times from now on.
func (d *script) begin() *script {
	d.start = time.Now()
	return d
}

// scripted is a script, or a store that has one.
type scripted interface {
	driver.Driver
	begin() *script
}

// stage runs f in virtual time with a session on d, which ends with it.
func stage(t *testing.T, d scripted, f func(t *testing.T, s *Session)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := New(d, slog.New(counting{&d.begin().lines}), nil)
		defer s.Close()
		f(t, s)
	})
}

// play is stage in a subtest.
func play(t *testing.T, name string, d scripted, f func(t *testing.T, s *Session)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { stage(t, d, f) })
}

// user is the owner of a lease, and records its events.
type user struct {
	terms *Terms
	hold  *Hold // that winds down after its maximum
	fails error // of giving it back
	mu    sync.Mutex
	news
}

// news are the events of a lease.
type news struct {
	handed   []time.Time
	renewals []error
	ended    []error
	cuts     int             // how often it reached its maximum
	at       time.Time       // of the end
	back     []time.Duration // within which it is to be given back
}

// told returns the events until now.
func (u *user) told() news { return locked(&u.mu, func() news { return u.news }) }

func (u *user) Terms() *Terms { return u.terms }

// note records an event.
func (u *user) note(event func(*news)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	event(&u.news)
}

func (u *user) Began(handed time.Time) { u.note(func(n *news) { n.handed = append(n.handed, handed) }) }

func (u *user) Renewed(_ time.Time, _ *driver.Reply, err error) {
	u.note(func(n *news) { n.renewals = append(n.renewals, err) })
}

func (u *user) Ended(cause error) {
	u.note(func(n *news) { n.ended, n.at = append(n.ended, cause), time.Now() })
}

func (u *user) Due() {
	if u.told().cuts > 0 {
		u.hold.WindDown()
	}
}

func (u *user) CutOff() { u.note(func(n *news) { n.cuts++ }) }

func (u *user) GiveBack(_ error, limit time.Duration) error {
	u.note(func(n *news) { n.back = append(n.back, limit) })
	return u.fails
}

// must ends the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// take makes u hold a lease that is granted now.
func take(t *testing.T, s *Session, u *user) *Hold {
	t.Helper()
	req := u.terms.request()
	a, err := s.Try(t.Context(), u.terms, req)
	must(t, err)
	u.hold = new(Hold)
	must(t, s.Hold(u.hold, req, a.Grant(), u))
	return u.hold
}
