package roomdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/room"
)

// call is one step on the record of a key.
type call interface {
	// Step may run again with another record: only its last run counts.
	room.Step
	state() *visit
	// settle puts the clock and a new token into the replies, where the step had to guess them.
	settle(now time.Time, guess, token int64)
}

// visit is the state of a call.
type visit struct {
	key     string
	once    string // the id that the step checks for an earlier use, or ""
	mark    string // the key of the mark if the step reads it together with the record, or ""
	reply   driver.Reply
	called  bool
	enters  bool  // by the last step the lock has changed hands
	minted  int   // how many tokens the last step has minted
	last    int64 // the last of them
	token   int64 // the last token of the record after it
	passes  int64 // a token that the table's counter must pass for it, or 0
	counted bool  // the table's counter passes that token
	ahead   bool  // a transaction may make the counter pass it, and thus spare the record
	shut    bool  // the next step must not let the lock change hands
	// crowded reports whether the record contains more than holders after the last step.
	crowded bool
	wakes   []room.Wake // of the last step
	err     error       // of the last step, and then of the call
}

func (v *visit) state() *visit { return v }

func (v *visit) settle(now time.Time, guess, token int64) { settle(&v.reply, now, guess, token) }

func settle(reply *driver.Reply, now time.Time, guess, token int64) {
	reply.Clock = time.Duration(now.UnixMicro()) * time.Microsecond // since the epoch
	if reply.Token == guess {
		reply.Token = token
	}
	for i := range reply.Holders {
		if h := &reply.Holders[i]; h.Token == guess {
			h.Token = token
		}
	}
}

// answer returns the reply if err is nil: a step that was not saved was not taken.
func (v *visit) answer(err error) (driver.Reply, error) {
	if err != nil {
		return driver.Reply{}, err
	}
	return v.reply, nil
}

// rooms is implemented by tables of this module that keep records as they are: in memory, where to
// encode them would take several times as long as all the rest, or in files of their own.
type rooms interface {
	// Visit takes a step on the record of key. It may depend on an earlier use of the id once, and
	// on the record with the key mark, unless they are empty.
	Visit(ctx context.Context, key, once, mark string, step room.Step) ([]room.Wake, error)
}

// batcher is implemented by rooms that take many steps together.
type batcher interface {
	// VisitAll takes a step on the record of each key, and then reports which of them it has taken,
	// their wakes and their errors, as often as necessary.
	VisitAll(
		ctx context.Context, keys []string, step func(i int) room.Step,
		taken func(which []int, wakes []room.Wake, errs []error),
	)
}

// prefixer is implemented by rooms whose messages to [Everybody] reach rooms of other prefixes.
type prefixer interface {
	Prefix() string
}

// errNotCalled is returned if the table did not run the update.
var errNotCalled = errors.New("the table has not read the record")

// do makes one call, and delivers its hints if it has certainly been saved.
func (d *Driver) do(ctx context.Context, c call) error {
	if err := d.usable(ctx); err != nil {
		return err
	}
	if err := check.Key(c.state().key); err != nil {
		return err
	}
	return d.visit(ctx, c)
}

func (d *Driver) visit(ctx context.Context, c call) error {
	if d.rooms == nil {
		return d.inTurn(ctx, c)
	}
	v := c.state()
	v.wakes, v.err = d.rooms.Visit(ctx, v.key, v.once, v.mark, c)
	v.called = true
	d.finish(ctx, v, nil)
	return v.err
}

// save makes the table run the step of a call.
func (d *Driver) save(ctx context.Context, c call) error {
	v := c.state()
	switch {
	case d.swap != nil && v.once == "" && v.mark == "" && d.exchange(ctx, c):
	case d.tx != nil:
		if len(d.transact(ctx, []call{c})) > 0 {
			v.err = errNotCalled // a single one is not to be left out
		}
	default:
		d.finish(ctx, v, d.table.Update(ctx, v.key, func(record []byte, now time.Time) ([]byte, error) {
			next, _, err := d.take(c, Found{Record: record, Now: now}, 0, 0)
			return next, err
		}))
	}
	return v.err
}

// transact makes calls about different keys, which are sorted, in one transaction, and
// returns the calls that were left out.
func (d *Driver) transact(ctx context.Context, calls []call) (skipped map[int]bool) {
	items := make([]Item, len(calls))
	for i, c := range calls {
		v := c.state()
		items[i].Key, items[i].Also = v.key, v.mark
		if v.once != "" {
			items[i].Note = noteKey(v.key, v.once)
		}
	}
	next := make([][]byte, len(calls))
	skipped = make(map[int]bool)
	sent := time.Now()
	left, err := d.tx.Transact(ctx, items, func(i int, found Found) Change {
		d.known.read(sent, found.Now)
		d.known.count(found.Token)
		record, note, err := d.take(calls[i], found, 0, found.Token)
		v := calls[i].state()
		delete(skipped, i)
		if len(calls) > 1 && v.minted > 0 { // the counter gives a token to a single item
			skipped[i] = true
		}
		if err != nil || skipped[i] {
			next[i] = found.Record
			return Change{Record: found.Record, Note: found.Note}
		}
		next[i] = record
		return Change{Record: record, Note: note, Enters: v.enters, Mints: v.minted > 0, Token: v.passes, Messages: d.messages(d.here(), v.wakes)}
	})
	if err == nil {
		for _, i := range left {
			skipped[i] = true
		}
		for i, item := range items {
			if !skipped[i] {
				d.known.renew(item.Key, next[i], calls[i].state().crowded)
			}
		}
	}
	for i, c := range calls {
		if !skipped[i] {
			d.finish(ctx, c.state(), err)
		}
	}
	return skipped
}

// take runs the step of a call on an encoded record. The clock may be up to slack later than
// found.Now. The table's counter has passed counted, and gives the call the token found.Token.
func (d *Driver) take(c call, found Found, slack time.Duration, counted int64) (record, note []byte, err error) {
	v := c.state()
	v.called = true
	defer func() { v.err = err }()
	r, err := decode(v.key, found.Record)
	if err != nil {
		return nil, nil, err
	}
	noted := d.tx != nil && v.once != ""
	if noted {
		if err := recall(&r, v.key, found.Note); err != nil {
			return nil, nil, err
		}
	}
	now, err := clock(found.Now)
	if err != nil {
		return nil, nil, err
	}
	if v.shut = found.Shut; v.shut {
		r.Closed = max(r.Closed, now/1000+shut.Milliseconds())
	}
	taken := found.Token > 0 && found.Token == counted
	if end, _ := room.End(found.Record); d.swap != nil && !taken && r.Token > counted && end == r.Until() && end < r.End(d.cfg.memory.Milliseconds()) {
		counted = r.Token // its writer has seen that
	}
	r.Store.Next = found.Token
	if found.Also != nil {
		mark, err := decode(markKey, found.Also)
		if err != nil {
			return nil, nil, err
		}
		r.Store.Marked = mark.IsMark(now)
	}
	before := r
	before.Inside = slices.Clone(r.Inside)
	if err = walk(c, &r, now); err != nil {
		return nil, nil, err
	}
	if slack > 0 {
		if err := allow(&before, &r, slack); err != nil {
			return nil, nil, err
		}
	}
	v.crowded = crowded(&r)
	counted = v.count(&r, found, counted, now, taken)
	if noted {
		note = d.remember(&r, v.once, found.Note, now)
	}
	return d.encode(&r, found.Record, now, counted), note, nil
}

// count notes the tokens of the step that made r, and returns up to which token the table's
// counter remembers. It has passed counted; taken reports whether it has given found.Token.
func (v *visit) count(r *room.Record, found Found, counted, now int64, taken bool) int64 {
	v.minted, v.last, v.token, v.passes = r.Store.Minted, r.Store.Last, r.Token, 0
	switch {
	case r.Token <= counted:
	case !taken && v.minted > 0 && r.Token == counted+1: // the counter gives this token, or a greater one
		counted = r.Token
	case taken && (r.Token < found.Token+int64(v.minted) || r.Token <= now || r.Store.Raised && r.Token <= now+room.Lead):
		counted, v.passes = r.Token, r.Token
	}
	v.counted = r.Token <= counted
	v.ahead = !v.counted && (r.Store.Raised || len(r.Inside)+len(r.Queue) == 0 && r.Token != room.MarkToken)
	return counted
}

// walk takes the step of a call on a record.
func walk(c call, r *room.Record, now int64) (err error) {
	v := c.state()
	v.called, v.enters = true, false
	before := slices.Clone(r.Inside)
	v.wakes, v.err = c.Step(r, now)
	v.enters = v.err == nil && (v.enters || changesHands(before, r))
	return v.err
}

// shut is for how long a lock is kept closed that cannot change hands. It is then
// asked again.
const shut = 250 * time.Millisecond

// changesHands reports whether a new holder does not merely join the present holders, or
// whether an exclusive holder lets other holders join from now on. In a semaphore, a new
// holder may have the place of a lease that has ended.
func changesHands(before []room.Party, r *room.Record) bool {
	if len(before) > 0 && len(r.Inside) > 0 && before[0].Mode != r.Inside[0].Mode { // all inside have one mode
		return true
	}
	in := func(list []room.Party) func(room.Party) bool {
		return func(p room.Party) bool {
			return slices.ContainsFunc(list, func(q room.Party) bool { return q.ID == p.ID })
		}
	}
	if !slices.ContainsFunc(r.Inside, func(p room.Party) bool { return !in(before)(p) }) {
		return false
	}
	joins := len(before) > 0 && r.Limit == 0 && !slices.ContainsFunc(before, func(p room.Party) bool { return !in(r.Inside)(p) })
	return !joins
}

// clock returns the time in µs, from which tokens are made.
func clock(now time.Time) (int64, error) {
	us := now.UnixMicro()
	if us <= 0 || us >= 1<<53 {
		return 0, fmt.Errorf("the clock of the table shows %v, of which no token can be made: %w", now, driver.ErrUnavailable)
	}
	return us, nil
}

// finish ends a call with the table's result.
func (d *Driver) finish(ctx context.Context, v *visit, err error) {
	switch {
	case v.called && v.err != nil: // refused, and so the record is unchanged
	case err != nil:
		v.err = err
	case !v.called:
		v.err = errNotCalled
	default:
		d.send(ctx, v.wakes)
	}
}
