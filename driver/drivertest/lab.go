package drivertest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// The times of the suite that are the same in every attempt.
const (
	slack    = 60 * time.Millisecond // beyond an expiry, to be sure of it
	rounding = 3 * time.Millisecond  // of stores that count milliseconds
	vague    = 25 * time.Millisecond // the greatest delay of an expiry by stores that guess their clock
	long     = time.Minute           // never passes in a row; the longest that all stores take for a ticket
	patience = 10 * time.Second      // bounds a call, and the wait for a hint
)

// mostTimes bounds by which factor an attempt is longer than the first one: its leases
// live for 6.4 s.
const mostTimes = 32

// lab is the environment of one row: a room of its own, and the durations of the attempt.
type lab struct {
	testing.TB
	cfg Config
	row string // its name
	tag string // makes the row's names unique in the store
	key string

	brief  time.Duration // the life of a lease that is to expire
	window time.Duration // a window of confirmation that is to lapse
	times  int           // the factor in brief and window
	late   bool          // the attempt has ended, because the store was too slow for it
}

// newLab returns the lab of an attempt. Its durations are the shortest durations, multiplied by times.
func newLab(t testing.TB, cfg Config, row string, times int) *lab {
	tag := strings.ToLower(rand.Text()[:10])
	return &lab{
		TB: t, cfg: cfg, row: row, tag: tag, key: row + "/" + tag,
		brief: time.Duration(200*times) * time.Millisecond, window: time.Duration(150*times) * time.Millisecond, times: times,
	}
}

// id returns the lease id that the row calls name.
func (l *lab) id(name string) string { return name + "-" + l.tag }

// ref returns the Ref of the row's lease or ticket called name, with long TTLs unless it is changed.
func (l *lab) ref(name string, changes ...change) driver.Ref {
	ref := driver.Ref{Key: l.key, ID: l.id(name), TTL: long, TicketTTL: long}
	for _, change := range changes {
		change(&ref)
	}
	return ref
}

// pass lets d pass in the store, and a little more.
func (l *lab) pass(d time.Duration) { l.cfg.Advance(d + slack) }

// attempt plays the row, and reports whether it must be played again with longer
// durations.
func (l *lab) attempt(r row) (late bool) {
	defer func() {
		if l.late {
			late = recover() != nil
		}
	}()
	r.run(l, l.process(), l.process())
	return false
}

// intime ends the attempt if the next answer is uncertain, because d has passed since
// start. If longer durations are pointless, it fails the row.
func (l *lab) intime(start time.Time, d time.Duration) {
	l.Helper()
	took := time.Since(start)
	if took < d || l.cfg.held {
		return
	}
	if l.times == mostTimes || d >= long-rounding {
		l.Fatalf("%s is not judged: the store took %v of %v, and longer leases are not tried; "+
			"set Config.Advance, or run on a quieter machine", l.row, took, d)
	}
	l.Logf("played again with longer leases: the store took %v of %v", took, d)
	l.late = true
	panic("drivertest: the attempt is over") // recovered by attempt
}

// process stands for a process that uses the store: a driver, its hints, and the leases that
// it has asked for.
type process struct {
	*lab
	d       driver.Driver
	sub     driver.Subscription
	hints   chan driver.Hint
	backlog []driver.Hint // received, and not yet returned by hear
	asked   []driver.Ref

	start   time.Time
	certain time.Duration // the next answer is certain only within this time of start; 0 for any time
}

func (l *lab) process() *process {
	l.Helper()
	p := &process{lab: l, d: l.cfg.Open(l)}
	l.Cleanup(p.close)
	return p
}

// close releases all leases, since the store may outlive the suite.
func (p *process) close() {
	for _, ref := range p.asked {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, _ = p.d.Release(ctx, ref)
		cancel()
	}
	if p.sub != nil {
		_ = p.sub.Close()
	}
	_ = p.d.Close()
}

// option changes a request. Without options a request asks once for a mutex.
type option func(*driver.Request)

func ttl(d time.Duration) option        { return func(r *driver.Request) { r.TTL = d } }
func waits(d time.Duration) option      { return func(r *driver.Request) { r.TicketTTL = d } }
func confirm(d time.Duration) option    { return func(r *driver.Request) { r.ConfirmWindow = d } }
func delay(d time.Duration) option      { return func(r *driver.Request) { r.LockDelay = d } }
func policy(p driver.Policy) option     { return func(r *driver.Request) { r.Policy = p } }
func minToken(n int64) option           { return func(r *driver.Request) { r.MinToken = n } }
func owner(name string) option          { return func(r *driver.Request) { r.Owner = name } }
func reenter(name string) option        { return func(r *driver.Request) { r.Owner, r.Reenter = name, true } }
func labels(m map[string]string) option { return func(r *driver.Request) { r.Labels = m } }
func visit(name string) option          { return func(r *driver.Request) { r.Visit = name } }
func in(key string) option              { return func(r *driver.Request) { r.Key = key } }
func guard(r *driver.Request)           { r.Guard = true }
func ordered(r *driver.Request)         { r.Ordered = true }
func resize(r *driver.Request)          { r.Resize = true }
func shared(r *driver.Request)          { r.Mode = driver.Shared }
func lower(r *driver.Request)           { r.Mode, r.Downgrade = driver.Shared, true }
func places(limit, weight int) option {
	return func(r *driver.Request) { r.Mode, r.Limit, r.Weight = driver.Shared, limit, weight }
}

// change changes the Ref of a renewal or a release.
type change func(*driver.Ref)

func at(key string) change           { return func(r *driver.Ref) { r.Key = key } }
func lasts(d time.Duration) change   { return func(r *driver.Ref) { r.TTL = d } }
func rejects(d time.Duration) change { return func(r *driver.Ref) { r.RejectIDFor = d } }
func closes(d time.Duration) change  { return func(r *driver.Ref) { r.KeepClosed = d } }
func raised(token int64) change      { return func(r *driver.Ref) { r.Token = token } }
func from(visit string) change       { return func(r *driver.Ref) { r.Visit = visit } }
func lone(r *driver.Ref)             { r.Uncontended = true }
func singleUse(r *driver.Ref)        { r.SingleUseID, r.RejectIDFor = true, long+time.Second }

func (p *process) request(name string, opts []option) driver.Request {
	req := driver.Request{
		Key: p.key, ID: p.id(name), Owner: "owner of " + name, Since: time.Now(), TTL: long, ConfirmWindow: long,
		HintAddress: p.address(),
	}
	for _, opt := range opts {
		opt(&req)
	}
	return req
}

// by returns p for a call with an answer that is certain only within d of start.
func (p *process) by(start time.Time, d time.Duration) *process {
	p.start, p.certain = start, d
	return p
}

// answered returns an answer, and fails the row if it is not want.
func (p *process) answered(what string, reply driver.Reply, want driver.State) driver.Reply {
	p.Helper()
	if d := p.certain; d > 0 {
		p.certain = 0
		p.intime(p.start, d-rounding)
	}
	p.expect(what, reply, want)
	return reply
}

// acquire asks, and fails the row if the answer is not want.
func (p *process) acquire(name string, want driver.State, opts ...option) driver.Reply {
	p.Helper()
	reply, err := p.try(p.request(name, opts))
	if err != nil {
		p.Fatalf("acquire %s: %v", name, err)
	}
	return p.answered("acquire "+name, reply, want)
}

// refused asks, and fails the row if the error is not want.
func (p *process) refused(name string, want error, opts ...option) {
	p.Helper()
	if reply, err := p.try(p.request(name, opts)); !errors.Is(err, want) {
		p.Fatalf("acquire %s: %+v, %v; want %v", name, reply, err, want)
	}
}

// try asks and returns the answer.
func (p *process) try(req driver.Request) (driver.Reply, error) {
	p.asked = append(p.asked, driver.Ref{Key: req.Key, ID: req.ID})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.d.Acquire(ctx, req)
}

// renew renews the lease or ticket called name.
func (p *process) renew(name string, want driver.State, changes ...change) driver.Reply {
	p.Helper()
	ref := p.ref(name, changes...)
	ref.HintAddress = p.address()
	got, _ := p.renewAll([]driver.Ref{ref})
	return p.answered("renew "+name, got[0], want)
}

// release ends the lease or ticket called name.
func (p *process) release(name string, want driver.State, changes ...change) driver.Reply {
	p.Helper()
	return p.answered("release "+name, p.free(name, changes...), want)
}

// free releases the lease or ticket called name and returns the answer.
func (p *process) free(name string, changes ...change) driver.Reply {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply, err := p.d.Release(ctx, p.ref(name, changes...))
	if err != nil {
		p.Fatalf("release %s: %v", name, err)
	}
	return reply
}

var states = map[driver.State]string{
	driver.Gone: "Gone", driver.Busy: "Busy", driver.Queued: "Queued", driver.Granted: "Granted",
	driver.Released: "Released", driver.Left: "Left", driver.Resized: "Resized",
}

func (l *lab) expect(what string, reply driver.Reply, want driver.State) {
	l.Helper()
	if reply.State != want {
		l.Fatalf("%s: %s, want %s (%+v)", what, states[reply.State], states[want], reply)
	}
}

// greater fails the row unless token b is a legal successor of a.
func (l *lab) greater(b, a int64) {
	l.Helper()
	if l.cfg.Without&Tokens != 0 {
		return
	}
	if b <= a || b >= 1<<53 {
		l.Fatalf("token %d follows %d: it must be greater, and below 2^53", b, a)
	}
}

// wantToken fails the row unless an answer has the token.
func (l *lab) wantToken(got driver.Reply, token int64) {
	l.Helper()
	if got.Token != token {
		l.Fatalf("token %d, want %d", got.Token, token)
	}
}

// wantReplayed fails the row unless an answer is marked as a repetition, or is not.
func (l *lab) wantReplayed(got driver.Reply, want bool) {
	l.Helper()
	if got.Replayed != want {
		l.Fatalf("Replayed is %t, want %t (%+v)", got.Replayed, want, got)
	}
}

// wantBroken fails the row unless an answer reports that the lease was broken, with the reason.
func (l *lab) wantBroken(got driver.Reply) {
	l.Helper()
	if !got.Broken || got.Reason != reason {
		l.Fatalf("broken %t, reason %q; want %q", got.Broken, got.Reason, reason)
	}
}
