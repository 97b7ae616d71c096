package roomdriver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/room"
)

// overdue is how late an exchange may arrive at the table.
const overdue = 5 * time.Second

// exchange runs the step of a call by an Exchange, and reports whether that was possible.
// If possible the first try is a guess from the record last seen and the clock: if it is
// right, the table need not be read. If other calls contend for the lock or are faster,
// a transaction that locks the record is better.
func (d *Driver) exchange(ctx context.Context, c call) (done bool) {
	v := c.state()
	found, slack, crowded := d.known.guess(v.key)
	if crowded {
		return false
	}
	if slack > 0 {
		done, found = d.trade(ctx, c, found, slack)
		if done || found.Now.IsZero() {
			return done
		}
	} else if found, v.err = d.read(ctx, v.key); v.err != nil {
		return true
	}
	done, found = d.trade(ctx, c, found, 0)
	if !done && !found.Now.IsZero() { // another process was faster
		d.known.keep(v.key, nil, true)
	}
	return done
}

// trade tries once to replace a record by the result of a call's step. If done is false,
// the record is unchanged, and now is its present content, if the table has returned it.
func (d *Driver) trade(ctx context.Context, c call, found Found, slack time.Duration) (done bool, now Found) {
	v := c.state()
	counted := d.known.counted()
	if counted > found.Now.UnixMicro()+room.Lead {
		counted = 0 // the counter was wrong then, and may have been corrected
	}
	found.Token = counted + 1
	next, _, refused := d.take(c, found, slack, counted)
	if refused == nil && (!v.exchangeable(found.Record, next) || len(d.messages(d.here(), v.wakes)) > 0) {
		return false, Found{}
	}
	if refused != nil || same(found.Record, next) {
		if slack > 0 { // the guess may have been wrong
			now, v.err = d.read(ctx, v.key)
			return v.err != nil, now
		}
		d.finish(ctx, v, nil)
		return true, now
	}
	x := Exchange{
		Key: v.key, Before: found.Record, From: found.Now, Until: found.Now.Add(overdue),
		Change: Change{Record: next, Enters: v.enters, Mints: v.minted > 0},
	}
	if slack > 0 {
		x.Until = found.Now.Add(slack + drift)
	}
	sent := time.Now()
	done, now, err := d.swap.Exchange(ctx, x)
	token := v.token
	if done && x.Mints {
		next = now.Record
		if token = room.Token(next); token > v.token || v.counted {
			d.known.count(token)
		}
	}
	if err != nil || now.Now.IsZero() {
		d.known.forget(v.key)
		v.err = err
		return err != nil, now
	}
	if agrees := d.known.read(sent, now.Now); done {
		d.known.keep(v.key, next, v.crowded)
		if slack > 0 && !agrees {
			err = errStepped
		}
		c.settle(now.Now, v.token, token)
		d.finish(ctx, v, err)
	}
	return done, now
}

// exchangeable reports whether an exchange can save the new record of a step. The token that it
// mints is read afterwards, so nothing else may depend on it; it makes a record only for a
// token; and it does not raise the counter, so that a record need not be kept for its token.
func (v *visit) exchangeable(before, next []byte) bool {
	switch v.minted {
	case 0:
		return next == nil || before != nil && !v.ahead
	case 1:
		return next != nil && v.last == v.token && len(v.wakes) == 0
	}
	return false
}

// read looks at a record without locking it.
func (d *Driver) read(ctx context.Context, key string) (found Found, err error) {
	sent := time.Now()
	if found.Record, found.Now, err = d.swap.Read(ctx, key); err == nil {
		d.known.read(sent, found.Now)
	}
	return found, err
}

// errStepped is returned if the clock was stepped during a change: a lease that began may
// end too early. A repeated request prolongs it.
var errStepped = errors.New("the clock of the table was stepped while it was written")

// errCrowded is the error of a guess that cannot be used.
var errCrowded = errors.New("the record has more in it than a holder")

// allow gives a lease that has begun by a guessed clock as much more time as the clock may
// be ahead of the guess: it counts from the call at the earliest. A lock that is closed,
// or has a queue, is not guessed.
func allow(before, after *room.Record, slack time.Duration) error {
	if crowded(before) || crowded(after) || after.Closed != before.Closed {
		return errCrowded
	}
	ms := (slack + time.Millisecond - 1).Milliseconds()
	old := make(map[string]int64, len(before.Inside))
	for _, p := range before.Inside {
		old[p.ID] = p.Expiry
	}
	for i := range after.Inside {
		if p := &after.Inside[i]; p.Expiry != old[p.ID] {
			p.Expiry += ms
		}
	}
	return nil
}

// crowded reports whether there is more in a record than holders.
func crowded(r *room.Record) bool { return len(r.Queue)+len(r.Marks)+len(r.Spent) > 0 }

// Bounds of guesses.
const (
	knownBytes = 4 << 20                // of records and their keys
	vague      = 20 * time.Millisecond  // of a clock that is no longer guessed
	drift      = 100 * time.Millisecond // that a step of the clock may be overlooked
)

// known holds a driver's memory of its table, to guess records.
type known struct {
	mu      sync.Mutex
	records map[string]seen
	size    int
	counter int64 // the greatest value of the table's counter that was seen

	shows      time.Time // a reading of the table's clock …
	sent, came time.Time // … and our clock before and after it
}

// seen is a record as it was last written. One that is crowded is not kept.
type seen struct {
	record  []byte
	crowded bool
}

// guess returns the record of a key as it was last seen, and the least that the table's
// clock can show now. It may show up to slack more. Without a slack there is no guess.
func (k *known) guess(key string) (found Found, slack time.Duration, crowded bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.records[key]
	least, most := k.clock(time.Now())
	if slack = most.Sub(least); last.crowded || slack > vague {
		return Found{}, 0, last.crowded
	}
	return Found{Record: last.record, Now: least}, slack, false
}

// clock returns bounds of the table's clock at now. The rates of clocks are assumed to
// differ by less than a thousandth, which is stricter than leases assume.
func (k *known) clock(now time.Time) (least, most time.Time) {
	passed := func(since time.Time) time.Duration { return now.Sub(since) }
	asleep := now.Round(0).Sub(k.came.Round(0)) - passed(k.came) // our clock stood still, or was stepped
	if k.shows.IsZero() || asleep.Abs() > time.Millisecond {
		return k.shows, k.shows.Add(time.Hour)
	}
	return k.shows.Add(passed(k.came) - passed(k.came)/1000), k.shows.Add(passed(k.sent) + passed(k.sent)/1000 + time.Microsecond)
}

// read notes a reading of the table's clock if it is more exact than the last, or
// contradicts it. It reports whether it does not.
func (k *known) read(sent, shows time.Time) (agrees bool) {
	came := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	least, most := k.clock(came)
	early, _ := k.clock(sent)
	agrees = !shows.Before(early) && !shows.After(most)
	if !agrees || came.Sub(sent) <= most.Sub(least) {
		k.shows, k.sent, k.came = shows, sent, came
	}
	return agrees
}

// count notes a value of the table's counter.
func (k *known) count(token int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counter = max(k.counter, token)
}

// counted returns a value that the table's counter has passed.
func (k *known) counted() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.counter
}

// keep remembers a record.
func (k *known) keep(key string, record []byte, crowded bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(key)
	if crowded {
		record = nil
	} else if record == nil || len(record) > knownBytes/16 {
		return
	}
	if k.records == nil {
		k.records = make(map[string]seen)
	}
	k.records[key] = seen{record, crowded}
	k.size += len(key) + len(record)
	for other := range k.records {
		if k.size <= knownBytes {
			break
		}
		k.drop(other)
	}
}

// renew remembers a record if another one of that key was remembered.
func (k *known) renew(key string, record []byte, crowded bool) {
	k.mu.Lock()
	_, ok := k.records[key]
	k.mu.Unlock()
	if ok {
		k.keep(key, record, crowded)
	}
}

func (k *known) forget(key string) { k.keep(key, nil, false) }

func (k *known) drop(key string) {
	if last, ok := k.records[key]; ok {
		k.size -= len(key) + len(last.record)
		delete(k.records, key)
	}
}
