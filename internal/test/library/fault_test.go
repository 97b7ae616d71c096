package library_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
)

// verb is a kind of request to a driver.
type verb = intercept.Verb

const (
	acquire = intercept.Acquire
	renew   = intercept.Renew
	release = intercept.Release
)

// fault describes the failure of one request.
type fault struct {
	skip  bool          // the store does not do it
	delay time.Duration // before the store does it
	late  time.Duration // before the answer arrives
	hang  bool          // no answer until the caller's context ends
	err   error         // the answer, also if the store did it
	// stray is how much later the store does it after the caller gave up.
	stray time.Duration
}

var errReplyLost = errors.New("connection reset")

var (
	hangs   = fault{skip: true, hang: true}             // the store hangs
	silent  = fault{hang: true}                         // done, and never answered
	loses   = fault{err: errReplyLost}                  // done, and the reply is lost
	fails   = fault{skip: true, err: errReplyLost}      // not done, but the client cannot see that
	refuses = fault{skip: true, err: errStoreIsLoading} // certainly not done
)

var errStoreIsLoading = fmt.Errorf("%w: loading", driver.ErrUnavailable)

// call is a request that was seen.
type call struct {
	verb verb
	key  string
	ref  driver.Ref
	req  driver.Request
	mark any // of its context
}

// script is a fault in force for some requests.
type script struct {
	verb  verb
	left  int // -1 is without end
	fault fault
}

// faultDriver applies faults to the requests of one client. Several clients may share a store,
// which outlives them.
type faultDriver struct {
	*intercept.Driver

	mu      sync.Mutex
	scripts []*script
	calls   []call
	closed  bool
	hints   func(driver.Hint, func(driver.Hint)) // delivers a hint; nil is as it is
}

func newFault(store *memdriver.Driver) *faultDriver {
	d := new(faultDriver)
	d.Driver = intercept.New(store, d.through)
	d.Split = true
	d.Hint = func(h driver.Hint, hear func(driver.Hint)) {
		d.mu.Lock()
		deliver := d.hints
		d.mu.Unlock()
		if deliver == nil {
			hear(h)
			return
		}
		deliver(h, hear)
	}
	return d
}

// through applies the fault of a request.
func (d *faultDriver) through(ctx context.Context, m *intercept.Message, send func(context.Context) error) error {
	c := call{verb: m.Verb, key: m.Request.Key, req: m.Request}
	switch m.Verb {
	case acquire:
	case renew, release:
		c.ref = m.Refs[0]
		c.key = c.ref.Key
	case intercept.Close: // other clients may use the store
		d.mu.Lock()
		defer d.mu.Unlock()
		d.closed = true
		return nil
	default:
		return send(ctx)
	}
	return d.take(ctx, c).meet(ctx, send)
}

// on puts a fault in force for the next n requests; 0 is for all to come.
func (d *faultDriver) on(v verb, n int, f fault) *script {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &script{verb: v, left: n, fault: f}
	if n == 0 {
		s.left = -1
	}
	d.scripts = append(d.scripts, s)
	return s
}

// heal ends all faults.
func (d *faultDriver) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scripts = nil
}

// seen returns the requests of one verb, in order.
func (d *faultDriver) seen(v verb) []call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.calls), func(c call) bool { return c.verb != v })
}

func (d *faultDriver) count(v verb) int { return len(d.seen(v)) }

// take records a request and returns its fault.
func (d *faultDriver) take(ctx context.Context, c call) fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.mark = ctx.Value(mark{})
	d.calls = append(d.calls, c)
	if d.closed {
		return fault{skip: true, err: driver.ErrClosed}
	}
	for _, s := range d.scripts {
		if s.verb == c.verb && s.left != 0 {
			s.left--
			return s.fault
		}
	}
	return fault{}
}

// meet sends a request under the fault.
func (f fault) meet(ctx context.Context, send func(context.Context) error) (err error) {
	switch {
	case f.stray > 0:
		time.AfterFunc(f.stray, func() { _ = send(context.Background()) })
		f.hang = f.err == nil
	case !f.skip:
		if !pause(ctx, f.delay) {
			return ctx.Err()
		}
		err = send(ctx)
	}
	if f.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if !pause(ctx, f.late) {
		return ctx.Err()
	}
	return cmp.Or(f.err, err)
}

func pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// bubble runs a test in virtual time. The test ends when every goroutine in it
// has, and fails if one cannot.
func bubble(t *testing.T, f func(t *testing.T, store *memdriver.Driver)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, memdriver.New()) })
}

// runBubble is bubble for a subtest.
func runBubble(t *testing.T, name string, f func(t *testing.T, store *memdriver.Driver)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, f) })
}

// open returns a client of the store that ends with the test, and its driver.
func open(t *testing.T, store *memdriver.Driver, opts ...leasehold.Option) (*leasehold.Client, *faultDriver) {
	t.Helper()
	d := newFault(store)
	c := newClient(t, d, opts...)
	t.Cleanup(func() {
		d.heal()
		noErr(t, c.Close())
	})
	return c, d
}

// lock takes the lock, which has to be free.
func lock(t *testing.T, c *leasehold.Client, key string, opts ...leasehold.Option) *leasehold.Lease {
	t.Helper()
	l, err := c.Mutex(key, opts...).TryLock(context.Background())
	if err != nil {
		t.Fatalf("lock %q: %v", key, err)
	}
	return l
}

func wantErr(t *testing.T, err error, wants ...error) {
	t.Helper()
	for _, want := range wants {
		if !errors.Is(err, want) {
			t.Errorf("error %q does not match %q", err, want)
		}
	}
}

// wantFree checks that the key has no holders and no waiters.
func wantFree(t *testing.T, store *memdriver.Driver, key string) {
	t.Helper()
	snap, err := store.Inspect(context.Background(), key)
	if err != nil || len(snap.Holders) > 0 || len(snap.Waiters) > 0 {
		t.Errorf("%q is not free: %+v, %v", key, snap, err)
	}
}

// newClient returns a client of the driver that ends with the test.
func newClient(t *testing.T, d driver.Driver, opts ...leasehold.Option) *leasehold.Client {
	t.Helper()
	c, err := leasehold.New(d, opts...)
	check(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// must returns a lease or ends the test.
func must(t *testing.T) func(*leasehold.Lease, error) *leasehold.Lease {
	return func(l *leasehold.Lease, err error) *leasehold.Lease {
		t.Helper()
		check(t, err)
		return l
	}
}

// giveBack releases leases, which must not be lost.
func giveBack(t *testing.T, leases ...leasehold.AnyLease) {
	t.Helper()
	for _, l := range leases {
		noErr(t, l.Release())
	}
}

// noErr fails the test if err is not nil.
func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// deleteIt ends a lease in the store; the holder does not notice.
func deleteIt(t *testing.T, store *memdriver.Driver, l *leasehold.Lease) {
	t.Helper()
	_, err := store.Release(t.Context(), driver.Ref{Key: l.Key(), ID: l.ID()})
	noErr(t, err)
}

// breakIt breaks a lease.
func breakIt(t *testing.T, store *memdriver.Driver, l *leasehold.Lease) {
	t.Helper()
	_, err := store.Break(t.Context(), l.Key(), l.ID(), "stuck")
	noErr(t, err)
}

// check ends the test if err is not nil.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
