package roomdriver

import (
	"bytes"
	"fmt"
	"maps"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// End returns the time after which a record may be removed, by the clock of its table,
// without decoding the whole record. A table can keep it in a column: it has a precision
// of a millisecond, and changes only with the record. forever is set for a record without
// an end. Invalid data matches [driver.ErrMismatch].
func End(record []byte) (end time.Time, forever bool, err error) {
	ms, err := room.End(record)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("%w: %w", err, driver.ErrMismatch)
	}
	return time.UnixMilli(ms), ms == room.Never, nil
}

// Look decodes a record of the lock of key at a time of its table's clock. An empty record
// is a free lock. Invalid data matches [driver.ErrMismatch].
func Look(record []byte, key string, now time.Time) (driver.Snapshot, error) {
	r, err := decode(key, record)
	if err != nil {
		return driver.Snapshot{}, err
	}
	return room.Look(&r, key, now.UnixMicro()), nil
}

func decode(key string, record []byte) (room.Record, error) {
	if record == nil {
		return room.Record{}, nil
	}
	r, err := room.Decode(record)
	if err != nil {
		return r, fmt.Errorf("the record of %q cannot be read (%w): inspect it, and remove it if no holder is alive: %w", key, err, driver.ErrMismatch)
	}
	return r, nil
}

// encode returns the record that replaces before. It is nil if it may be removed at once,
// and before itself if it is unchanged. The table's counter remembers tokens up to counted.
func (d *Driver) encode(r *room.Record, before []byte, now, counted int64) []byte {
	end := r.Until()
	if r.Token > counted {
		end = r.End(d.cfg.memory.Milliseconds())
	}
	left := end - now/1000
	if left <= 0 {
		return nil
	}
	if r.Token == room.MarkToken {
		end, left = room.Never, 0
	}
	next := room.Append(nil, r, end)
	if bytes.Equal(next, before) {
		return before
	}
	d.sweeps.expect(left)
	return next
}

// Keys that begin with own belong to the driver: the keys of locks have no control
// characters.
const (
	own     = "\x01"
	markKey = own + "mark"
)

// noteKey returns the key of the note about a single-use id.
func noteKey(key, id string) string {
	return fmt.Sprintf("%snote %016x %s", own, room.Hash(id), key)
}

// recall adds the state of an id in the note to a record.
func recall(r *room.Record, key string, note []byte) error {
	n, err := decode(key, note)
	if err != nil || len(n.Spent) == 0 {
		return err
	}
	if r.Spent == nil {
		r.Spent = make(room.Spent)
	}
	maps.Copy(r.Spent, n.Spent)
	return nil
}

// remember moves the state of an id from a record to its note.
func (d *Driver) remember(r *room.Record, id string, note []byte, now int64) []byte {
	var n room.Record
	hash := room.Hash(id)
	if value, ok := r.Spent[hash]; ok {
		n.Spent = room.Spent{hash: value}
		delete(r.Spent, hash)
	}
	return d.encode(&n, note, now, 0)
}
