package roomdriver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Swapper is a table that replaces a record if it is unchanged since it was read: a
// conditional write, a compare-and-swap of a key-value store, a file with an ETag.
type Swapper interface {
	// Load returns the record of key, nil if there is none, a unique name of its
	// version (also without a record), and the clock of the table, read after the call
	// began. After an error the record is unchanged.
	Load(ctx context.Context, key string) (record []byte, version string, now time.Time, err error)
	// Swap replaces the record by next if it still has the version; a nil next
	// removes it. ok is false if it has another version and is unchanged. An error
	// means that the outcome is unknown, unless it matches [driver.ErrUnavailable].
	Swap(ctx context.Context, key, version string, next []byte) (ok bool, err error)
	// List and Close are as in [Table].
	List(ctx context.Context, prefix, cursor string) (Page, error)
	Close() error
}

// FromSwapper returns a table that uses compare-and-swap. For further abilities, embed the
// table in a struct, for example with a [Bus]. An update that finds the record replaced
// begins again after a pause that grows from 1 to 32 ms, until its context ends; its error
// then matches [driver.ErrUnavailable] and the context's error.
func FromSwapper(s Swapper) Table { return swapTable{s} }

type swapTable struct{ Swapper }

// Update implements [Table].
func (t swapTable) Update(ctx context.Context, key string, f func(record []byte, now time.Time) (next []byte, err error)) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 32*time.Millisecond) {
		record, version, now, err := t.Load(ctx, key)
		if errors.Is(err, driver.ErrUnavailable) {
			return err
		}
		if err != nil {
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		next, err := f(record, now)
		if err != nil || same(record, next) {
			return err
		}
		if ok, err := t.Swap(ctx, key, version, next); ok || err != nil {
			return err
		}
		if !timing.Sleep(ctx, rand.N(pause)+pause/2) {
			return fmt.Errorf("%w: the record was replaced again and again: %w", driver.ErrUnavailable, ctx.Err())
		}
	}
}

// same reports whether the record is unchanged.
func same(record, next []byte) bool {
	return (record == nil) == (next == nil) && string(record) == string(next)
}
