package httpdriver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Driver is a store behind a service. [Open] returns one. It is safe for concurrent use. In
// addition to [driver.Driver] it implements [driver.Limited], [driver.Watcher],
// [driver.Glancer], [driver.Breaker] and [driver.Checker].
type Driver struct {
	base   string // URL up to /v1, without a slash at its end
	cfg    config
	client atomic.Pointer[http.Client]

	// authenticated is set when the service has accepted a token that is in a file.
	authenticated atomic.Bool

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // of subscriptions
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Watcher = (*Driver)(nil)
	_ driver.Glancer = (*Driver)(nil)
	_ driver.Breaker = (*Driver)(nil)
	_ driver.Checker = (*Driver)(nil)
	_ driver.Limited = (*Driver)(nil)
)

// Supports implements [driver.Limited]. Missing features of the store behind the service are
// only found by requests; a quorum is made of stores behind one service, not of services.
func (d *Driver) Supports(req driver.Request) error {
	if req.Guard {
		return fmt.Errorf("a service cannot report that its store has lost its data: %w", errors.ErrUnsupported)
	}
	return nil
}

// Acquire asks the service for a lock by one request. The error matches
// [driver.ErrUnavailable] if the request certainly had no effect; otherwise, unless it
// matches [driver.ErrInvalid] or [driver.ErrMismatch], the outcome is unknown, and asking
// again with the same id is safe. See [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if err := d.Supports(req); err != nil {
		return driver.Reply{}, err
	}
	ttl, ticket := wire.MillisOf(req.TTL), wire.MillisOf(req.TicketTTL)
	body := wire.Acquire{
		Key:     req.Key,
		LeaseID: req.ID, Mode: wire.ModeName(req.Mode), Policy: wire.PolicyName(req.Policy),
		Limit: wire.Whole(req.Limit), Permits: wire.Whole(req.Weight), TTL: &ttl, Ticket: &ticket, Owner: req.Owner, Reentrant: req.Reenter,
		Labels: req.Labels, Since: req.Since, MinToken: wire.Whole(req.MinToken), Ordered: req.Ordered, LockDelay: wire.MillisOf(req.LockDelay),
		Confirm: wire.MillisOf(req.ConfirmWindow), Notify: req.HintAddress, Visit: req.Visit, Resize: req.Resize, Downgrade: req.Downgrade,
	}
	reply, err := d.lease(ctx, req.Key, req.ID, "/locks", &body)
	if errors.Is(err, errElsewhere) { // the release is changed in the same way
		_, _ = d.Release(ctx, driver.Ref{Key: req.Key, ID: req.ID, Visit: req.Visit})
	}
	return reply, err
}

// Release ends a lease or leaves the queue by one request. See [driver.Driver].
func (d *Driver) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	forbid := wire.MillisOf(ref.RejectIDFor)
	body := wire.Release{Key: ref.Key, LeaseID: ref.ID, Keep: wire.MillisOf(ref.KeepClosed), Forbid: &forbid, Visit: ref.Visit}
	return d.lease(ctx, ref.Key, ref.ID, "/leases:release", &body)
}

// Break ends the lease or the place in the queue id by force. The service's user needs
// the right to break locks. See [driver.Breaker].
func (d *Driver) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	return d.lease(ctx, key, id, "/locks:break", &wire.Break{Key: key, LeaseID: id, Reason: reason})
}

// Inspect returns one consistent picture of a lock: its holders and waiters. See
// [driver.Inspector].
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	return d.picture(ctx, url.Values{"name": {key}})
}

// Glance returns the picture of Inspect without the waiters. See [driver.Glancer].
func (d *Driver) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	return d.picture(ctx, url.Values{"name": {key}, "waiters": {"false"}})
}

func (d *Driver) picture(ctx context.Context, query url.Values) (driver.Snapshot, error) {
	var l wire.Lock
	if err := d.look(ctx, "/locks:inspect?"+query.Encode(), &l); err != nil {
		return driver.Snapshot{}, err
	}
	if l.Key != query.Get("name") {
		return driver.Snapshot{}, fmt.Errorf("%w: the service answers for lock %.80q: %w", driver.ErrUnavailable, l.Key, errAnswer)
	}
	return l.Snapshot(), nil
}

// List returns a page of the keys in use that begin with prefix, and the cursor of the
// next page, empty after the last. See [driver.Inspector].
func (d *Driver) List(ctx context.Context, prefix, cursor string) ([]string, string, error) {
	var l wire.Locks
	q := url.Values{"prefix": {prefix}, "cursor": {cursor}}
	if err := d.look(ctx, "/locks?"+q.Encode(), &l); err != nil {
		return nil, "", err
	}
	if l.Keys == nil {
		return nil, "", fmt.Errorf("%w: no list of locks: %w", driver.ErrUnavailable, errAnswer)
	}
	return l.Keys, l.Cursor, nil
}

// Close ends the subscriptions. Later calls fail with [driver.ErrClosed].
func (d *Driver) Close() error {
	d.cancel()
	d.work.Wait()
	d.client.Load().CloseIdleConnections()
	return nil
}

// lease sends a request whose answer is about one lease. The name of the lock is in the body,
// because a proxy may change a path.
func (d *Driver) lease(ctx context.Context, key, id, path string, body any) (driver.Reply, error) {
	var l wire.Lease
	err := d.call(ctx, leastSilence, http.MethodPost, path, body, &l)
	var p *problem
	if errors.As(err, &p) {
		if err := sameKey(key, p.Key); err != nil {
			return driver.Reply{}, err
		}
		if reply, ok := p.reply(id); ok {
			reply.InFlight = p.Repeated
			return reply, nil
		}
	}
	if err != nil {
		return driver.Reply{}, err
	}
	reply, err := replyOf(&l, key, id)
	if err != nil {
		return driver.Reply{}, err
	}
	if l.Repeated && !reply.Replayed {
		// The caller needs it for the release. If the request is repeated, the service
		// answers for the same lease.
		return driver.Reply{}, errRepeated
	}
	reply.InFlight = l.Repeated // another request with this id may still be in flight
	return reply, nil
}

// replyOf returns the reply in an answer about the lease id of a lock. An answer that does
// not name the lease comes from another program, such as a proxy, and is not used.
func replyOf(l *wire.Lease, key, id string) (driver.Reply, error) {
	if err := sameKey(key, l.Key); err != nil && l.LeaseID == id {
		return driver.Reply{}, err
	}
	reply, err := l.Reply()
	if err != nil || l.LeaseID != id {
		return driver.Reply{}, fmt.Errorf("the service answers %.80q for lease %.80q: %w", l.State, l.LeaseID, errAnswer)
	}
	return reply, nil
}

// sameKey returns an error if an answer names another lock than the request did.
func sameKey(key, answered string) error {
	if answered == "" || answered == key {
		return nil
	}
	return fmt.Errorf("the service answers for lock %.80q: %w: %w", answered, errElsewhere, driver.ErrPermanent)
}

// errElsewhere is an answer about another lock.
var errElsewhere = errors.New("a proxy changes the request")

// errRepeated is an answer that the store gave the service only when it was
// asked again: the first request may still be on its way.
var errRepeated = errors.New("the store did not answer the service at first")

// errAnswer is an answer that makes no sense: perhaps not that of a service.
var errAnswer = errors.New("unexpected answer")

// look sends a read-only request.
func (d *Driver) look(ctx context.Context, path string, into any) error {
	err := d.call(ctx, leastSilence, http.MethodGet, path, nil, into)
	if errors.Is(ctx.Err(), context.Canceled) {
		return err // the service is not to blame
	}
	return timing.OfRead(err)
}

// maxAnswer bounds the length of an answer.
const maxAnswer = 64 << 20

// leastSilence is the silence of most requests. A caller that leaves sooner does not show
// that the service is silent; a renewal of a short lease does, see [silenceOf].
const leastSilence = 250 * time.Millisecond

// call sends a request and decodes the answer. silence is how long its connection has to be
// silent, or the timeout if that is shorter, to count as one that leads nowhere.
func (d *Driver) call(ctx context.Context, silence time.Duration, method, path string, body, into any) error {
	if d.ctx.Err() != nil {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: not sent: %w", driver.ErrUnavailable, context.Cause(ctx))
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, d.cfg.timeout)
	defer cancel()
	stop := context.AfterFunc(d.ctx, cancel)
	defer stop()
	var way journey
	req, err := d.request(way.watch(ctx), method, path, body)
	if err != nil {
		return err
	}
	client := d.client.Load()
	defer d.finished(client)
	res, err := client.Do(req)
	if err != nil {
		if way.reused.Load() && errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(began) >= min(d.cfg.timeout, silence) {
			d.leave(client)
		}
		return way.failed(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("the answer was cut off: %w", err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return d.refusal(problemOf(res, text))
	}
	d.authenticated.Store(d.cfg.rotates)
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	return nil
}

// refusal returns an answer that is an error. Time may heal the refusal of a token after an
// earlier one of its file was accepted: the service may be ahead of the file.
func (d *Driver) refusal(err error) error {
	var p *problem
	if errors.As(err, &p) && p.cause() == "unauthenticated" && d.authenticated.Load() {
		p.kind = driver.ErrUnavailable
	}
	return err
}

// leave stops the use of a client's connections after one of them was silent for a while. A
// router may have forgotten all of them, and each would cost a time-out of its own. In
// HTTP/2 all requests would continue on the silent connection, until the operating system
// gives it up; it is not idle, so another client replaces this one.
func (d *Driver) leave(client *http.Client) {
	if d.cfg.fresh == nil {
		client.CloseIdleConnections()
		return
	}
	d.client.CompareAndSwap(client, staying(d.cfg.fresh()))
}

// finished records the end of a request by a client. It may have been left since, and keeps no
// connections then.
func (d *Driver) finished(client *http.Client) {
	if d.client.Load() != client {
		client.CloseIdleConnections()
	}
}

func (d *Driver) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var text bytes.Buffer
	if body != nil {
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false) // escaping makes six bytes of one, and services limit the size
		if err := e.Encode(body); err != nil {
			return nil, fmt.Errorf("%w: %w", driver.ErrInvalid, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, &text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Prefer", "return=representation") // a release then returns the ended lease
	// Only the caller repeats requests, because it then takes into account that the
	// first request may still be on its way. net/http itself repeats only a GET, which
	// is read-only, and requests that were not written at all.
	if d.cfg.token != nil {
		token, err := d.cfg.token()
		if err != nil {
			return nil, fmt.Errorf("%w: token: %w", driver.ErrUnavailable, err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}
