package roomdriver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/room"
)

// exchanges is how often a record is exchanged before it is locked: others replace it
// all the time.
const exchanges = 3

// overdue is how late an exchange may arrive at the table.
const overdue = 5 * time.Second

// exchange takes the step of a call by exchanges, and reports whether that was possible.
// The first one is a guess, if there can be one: the record as we have seen it last, and
// the clock. If it is right nothing has to be read.
func (d *Driver) exchange(ctx context.Context, c call) (done bool) {
	v := c.state()
	found, slack, err := d.guess(ctx, v.key)
	for n := 0; err == nil && n < exchanges; {
		next, _, refused := d.take(c, found, slack)
		if unchanged := refused != nil || same(found.Record, next); unchanged && slack > 0 {
			found, err = d.read(ctx, v.key) // the guess may have been wrong
			slack = 0
			continue
		} else if unchanged {
			if refused == nil && len(d.messages(v.wakes)) > 0 {
				return false
			}
			d.finish(ctx, v, nil)
			return true
		}
		x := Exchange{
			Key: v.key, Before: found.Record, From: found.Now, Until: found.Now.Add(overdue),
			Change: Change{Record: next, Enters: v.enters, Messages: d.messages(v.wakes)},
		}
		if slack > 0 {
			x.Until = found.Now.Add(slack + drift)
		}
		var swapped bool
		sent := time.Now()
		swapped, found, err = d.swap.Exchange(ctx, x)
		switch {
		case err != nil:
			d.known.forget(v.key)
		case found.Now.IsZero():
			d.known.forget(v.key)
			return false
		default:
			agrees := d.known.read(sent, found.Now)
			if swapped {
				d.known.keep(v.key, next)
				if err = nil; slack > 0 && !agrees {
					err = errStepped
				}
				c.date(found.Now)
				d.finish(ctx, v, err)
				return true
			}
		}
		slack = 0
		n++
	}
	v.err = err
	return err != nil
}

// guess returns what is known of a record, or reads it. The clock shows found.Now or up
// to slack more, where it was not read.
func (d *Driver) guess(ctx context.Context, key string) (found Found, slack time.Duration, err error) {
	if found, slack = d.known.guess(key); slack > 0 {
		return found, slack, nil
	}
	found, err = d.read(ctx, key)
	return found, 0, err
}

// read looks at a record without locking it.
func (d *Driver) read(ctx context.Context, key string) (found Found, err error) {
	sent := time.Now()
	if found.Record, found.Now, err = d.swap.Read(ctx, key); err == nil {
		d.known.read(sent, found.Now)
	}
	return found, err
}

// errStepped is the error of a change that was made by a clock that has been stepped in
// between: what has begun may end too early. Whoever asks again prolongs it.
var errStepped = errors.New("the clock of the table was stepped while it was written")

// errCrowded is the error of a guess that cannot be used.
var errCrowded = errors.New("the record has more in it than a holder")

// allow gives what has begun by a guessed clock as much more time as the clock may be
// ahead of the guess: it counts from the call at the earliest. Only holders and a lock
// that is closed are given it; with a queue there is no guess.
func allow(before, after *room.Record, slack time.Duration) error {
	if len(after.Queue)+len(after.Marks)+len(after.Spent)+len(before.Queue)+len(before.Marks)+len(before.Spent) > 0 {
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
	if after.Closed != before.Closed {
		after.Closed += ms
	}
	return nil
}

// Bounds of what is known.
const (
	knownBytes = 4 << 20                // of records and their keys
	vague      = 20 * time.Millisecond  // of a clock that is not guessed any more
	drift      = 100 * time.Millisecond // that a step of the clock may be overlooked
)

// known is what a driver remembers of its table, to guess it.
type known struct {
	mu      sync.Mutex
	records map[string][]byte
	size    int

	shows      time.Time // a reading of the table's clock …
	sent, came time.Time // … and our clock before and after it
}

// guess returns the record of a key as it was last seen, and the least that the table's
// clock can show now. It may show up to slack more. Without a slack there is no guess.
//
// That there is no record is not guessed: its first token is made of the clock alone, and
// has to be greater than one that the table has just lost.
func (k *known) guess(key string) (found Found, slack time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	record, ok := k.records[key]
	least, most := k.clock(time.Now())
	if slack = most.Sub(least); !ok || slack > vague {
		return Found{}, 0
	}
	return Found{Record: record, Now: least}, slack
}

// clock returns between what times the table's clock is. Clocks differ in their rate by
// less than a thousandth; one that is further off is not what leases stand on.
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

// keep remembers a record.
func (k *known) keep(key string, record []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(key)
	if record == nil || len(record) > knownBytes/16 {
		return
	}
	if k.records == nil {
		k.records = make(map[string][]byte)
	}
	k.records[key] = record
	k.size += len(key) + len(record)
	for other := range k.records {
		if k.size <= knownBytes {
			break
		}
		k.drop(other)
	}
}

// renew remembers a record if another one of that key was remembered.
func (k *known) renew(key string, record []byte) {
	k.mu.Lock()
	_, ok := k.records[key]
	k.mu.Unlock()
	if ok {
		k.keep(key, record)
	}
}

func (k *known) forget(key string) { k.keep(key, nil) }

func (k *known) drop(key string) {
	if record, ok := k.records[key]; ok {
		k.size -= len(key) + len(record)
		delete(k.records, key)
	}
}
