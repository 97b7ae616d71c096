package roomdriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/hints"
	"github.com/leasehold-go/leasehold/internal/room"
)

// Driver is a store over a table. It is safe for concurrent use.
type Driver struct {
	table  Table
	tx     Transactor // nil if the table does not implement it
	swap   Exchanger  // nil if the table does not implement it
	rooms  rooms      // nil if the table does not implement it
	prefix string     // of the keys in messages to everybody
	cfg    config
	sweeps sweeps
	turns  turns
	known  known

	closed atomic.Bool
	subs   hints.Subscriptions

	listening sync.Mutex                          // held while the driver begins to listen
	ear       atomic.Pointer[driver.Subscription] // of the table; nil before the first Watch
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Watcher = (*Driver)(nil)
	_ driver.Glancer = (*Driver)(nil)
	_ driver.Breaker = (*Driver)(nil)
	_ driver.Marker  = (*Driver)(nil)
)

// New returns a driver over a table, which it closes when it is closed.
func New(t Table, options ...Option) *Driver {
	d := &Driver{table: t, cfg: config{memory: time.Hour, interval: time.Minute}}
	for _, option := range options {
		option(&d.cfg)
	}
	d.tx, _ = t.(Transactor)
	d.swap, _ = t.(Exchanger)
	d.turns.waiting = make(map[string][]*turn)
	d.rooms, _ = t.(rooms)
	if p, ok := t.(prefixer); ok {
		d.prefix = p.Prefix()
	}
	d.sweeps.d = d
	d.sweeps.ctx, d.sweeps.cancel = context.WithCancel(context.Background())
	return d
}

// Calls on rooms in memory are pooled: they are the greatest cost there. Any other table
// might keep a reference to them.
var (
	enterings  = sync.Pool{New: func() any { return new(entering) }}
	releasings = sync.Pool{New: func() any { return new(releasing) }}
)

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	req.TTL, req.TicketTTL = d.cfg.longer(req.TTL), d.cfg.longer(req.TicketTTL)
	req.LockDelay, req.ConfirmWindow = d.cfg.longer(req.LockDelay), d.cfg.longer(req.ConfirmWindow)
	reply, probe, err := d.enter(ctx, req, "")
	if probe != "" {
		return d.enterMarked(ctx, req, probe)
	}
	return reply, err
}

// enter asks for the lock. If the error is [driver.ErrAmnesia], the record now has the
// returned probe.
func (d *Driver) enter(ctx context.Context, req driver.Request, probe string) (driver.Reply, string, error) {
	if d.rooms == nil { // the call may go on without its caller, which may change its own
		req.Labels = maps.Clone(req.Labels)
	}
	c := enterings.Get().(*entering)
	*c = entering{visit: visit{key: req.Key}, req: req, probe: probe}
	if req.SingleUseID {
		c.once = req.ID
	}
	if req.Guard && (d.tx != nil || d.rooms != nil) {
		c.mark = markKey
	}
	left := ""
	reply, err := c.answer(d.do(ctx, c))
	if err == nil && c.left != "" { // after an error the call may still be in use
		left, err = c.left, driver.ErrAmnesia
	}
	if d.rooms != nil {
		enterings.Put(c)
	}
	return reply, left, err
}

// entering is a call of Acquire.
type entering struct {
	visit
	req   driver.Request
	probe string // from the refusal before, or ""
	left  string // the probe in the record if this call was refused, or ""
}

// errKept is the error of a downgrade while something keeps the lock from changing hands.
var errKept = fmt.Errorf("the table keeps the lock from changing hands for now: %w", driver.ErrUnavailable)

func (c *entering) Step(r *room.Record, now int64) (wakes []room.Wake, err error) {
	if c.shut && c.lowers(r, now) {
		return nil, errKept // a closed lock blocks new holders, but not present ones
	}
	req := c.req
	req.Guard = req.Guard && !passes(r, c.probe)
	c.reply, wakes, err = room.Acquire(r, req, now)
	if c.left = ""; errors.Is(err, driver.ErrAmnesia) && c.mark == "" {
		c.reply, c.left, err = driver.Reply{}, leaveProbe(r, now), nil
	} else if r.Token != 0 { // it shows as much as a probe
		delete(r.Marks, probeMark)
	}
	return wakes, err
}

// lowers reports whether the step would make a reader's lease of a writer's.
func (c *entering) lowers(r *room.Record, now int64) bool {
	return c.req.Mode == driver.Shared && !c.req.Resize && slices.ContainsFunc(r.Inside, func(p room.Party) bool {
		return p.ID == c.req.ID && p.Mode == driver.Exclusive && p.Expiry > now/1000
	})
}

// Release implements [driver.Driver].
func (d *Driver) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	ref.KeepClosed, ref.RejectIDFor = d.cfg.longer(ref.KeepClosed), d.cfg.longer(ref.RejectIDFor)
	c := releasings.Get().(*releasing)
	*c = releasing{visit: visit{key: ref.Key}, ref: ref}
	if ref.SingleUseID && ref.RejectIDFor > 0 {
		c.once = ref.ID
	}
	reply, err := c.answer(d.do(ctx, c))
	if d.rooms != nil {
		releasings.Put(c)
	}
	return reply, err
}

// releasing is a call of Release.
type releasing struct {
	visit
	ref driver.Ref
}

func (c *releasing) Step(r *room.Record, now int64) (wakes []room.Wake, _ error) {
	c.reply, wakes = room.Release(r, c.ref, now)
	return wakes, nil
}

// Break implements [driver.Breaker].
func (d *Driver) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	c := breaking{visit: visit{key: key}, id: id, reason: reason}
	return c.answer(d.do(ctx, &c))
}

// breaking is a call of Break.
type breaking struct {
	visit
	id, reason string
}

func (c *breaking) Step(r *room.Record, now int64) (wakes []room.Wake, _ error) {
	c.reply, wakes = room.Break(r, c.key, c.id, c.reason, now)
	return wakes, nil
}

// Inspect implements [driver.Inspector].
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	return d.picture(ctx, key, room.Look)
}

// Glance implements [driver.Glancer]. A table that keeps its records encoded
// decodes the tickets nevertheless.
func (d *Driver) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	return d.picture(ctx, key, room.Glance)
}

// seeing is room.Look or room.Glance.
type seeing func(r *room.Record, key string, now int64) driver.Snapshot

func (d *Driver) picture(ctx context.Context, key string, see seeing) (driver.Snapshot, error) {
	if err := d.usable(ctx); err != nil {
		return driver.Snapshot{}, err
	}
	if err := check.Key(key); err != nil {
		return driver.Snapshot{}, err
	}
	c := looking{visit: visit{key: key}, see: see}
	if err := d.look(ctx, &c); err != nil {
		return driver.Snapshot{}, err
	}
	return c.snap, nil
}

// looking is a call of Inspect or Glance.
type looking struct {
	visit
	see  seeing
	snap driver.Snapshot
	head string
}

func (c *looking) Step(r *room.Record, now int64) ([]room.Wake, error) {
	c.snap, c.head = c.see(r, c.key, now), r.Head
	return nil, nil
}

// look reads a record without changing it.
func (d *Driver) look(ctx context.Context, c *looking) error {
	r, ok := d.table.(Reader)
	if !ok {
		return d.visit(ctx, c)
	}
	type found struct {
		record []byte
		now    time.Time
		err    error
	}
	answer := make(chan found, 1)
	go func() {
		var f found
		f.record, f.now, f.err = r.Read(ctx, c.key)
		answer <- f
	}()
	var f found
	select {
	case f = <-answer:
	case <-ctx.Done():
		return fmt.Errorf("%w: the caller left before the table answered: %w", driver.ErrUnavailable, ctx.Err())
	}
	if f.err != nil {
		return f.err
	}
	record, err := decode(c.key, f.record)
	if err == nil {
		_, err = c.Step(&record, f.now.UnixMicro())
	}
	return err
}

// List implements [driver.Inspector]. It includes the keys of free locks that are kept
// closed.
func (d *Driver) List(ctx context.Context, prefix, cursor string) (keys []string, next string, err error) {
	if err := d.usable(ctx); err != nil {
		return nil, "", err
	}
	page, err := d.table.List(ctx, prefix, cursor)
	if err != nil {
		return nil, "", err
	}
	for _, e := range page.Entries {
		if !strings.HasPrefix(e.Key, own) && inUse(e, page.Now) {
			keys = append(keys, e.Key)
		}
	}
	return keys, page.Next, nil
}

// inUse reports whether a record is worth looking at. One that cannot be read is.
func inUse(e Entry, now time.Time) bool {
	snap, err := Look(e.Record, e.Key, now)
	return err != nil || len(snap.Holders) > 0 || len(snap.Waiters) > 0 || snap.Closed > 0
}

// Close ends the driver's subscriptions, its sweeps and its table. Later calls
// fail with [driver.ErrClosed].
func (d *Driver) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.subs.Close()
	d.sweeps.close()
	d.listening.Lock() // a Watch that starts now sees that the driver is closed
	defer d.listening.Unlock()
	var err error
	if ear := d.ear.Load(); ear != nil {
		err = (*ear).Close()
	}
	return errors.Join(err, d.table.Close())
}

// usable returns an error if a call must not start.
func (d *Driver) usable(ctx context.Context) error {
	if d.closed.Load() {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return nil
}
