package roomdriver

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Table keeps one record for each key. It is safe for concurrent use, by the
// drivers of any number of processes.
//
// A key is UTF-8 of at most 540 bytes: the name of a lock, which has at most 512 and
// no control characters, or a key of the driver's own, which begins with the byte 1.
// Keys are compared byte by byte. A record has about 30 bytes, and for every holder
// and waiter 100 more, its labels apart.
//
// A call ends soon after its context, or after a time limit of the table's own: a table
// that would lose a connection by cutting a request off lets it end, and the driver waits
// no longer than its caller does. Its error matches [driver.ErrUnavailable]
// only if it is certain that nothing was changed; every other error says that
// the outcome is unknown. An error of f is no error of the table.
type Table interface {
	// Update replaces the record of key atomically by what f makes of it. No
	// other update of the key takes effect between the reading of record and the
	// writing of next. A nil record is none, and a nil next removes the record.
	// If next equals record there is nothing to write. f keeps and changes no
	// byte of record; next is the table's.
	//
	// now is the clock of the table, read after the call began, and in a table
	// that locks records after the lock was gained. See the package documentation
	// for what is expected of it.
	//
	// If f returns an error, Update changes nothing and returns that error, as it
	// is or wrapped. It may call f again, with a record that it has read anew, as
	// long as nothing that f returned before has been or will be written. It
	// returns nil only when the last next is certainly written, so that no reader
	// will see an older record.
	Update(ctx context.Context, key string, f func(record []byte, now time.Time) (next []byte, err error)) error

	// List returns a page of the records whose keys begin with prefix, in any
	// order. The cursor is empty for the first page, and then what the page
	// before said. Records that are there during the whole listing are returned
	// at least once. Those that may be forgotten can be left out.
	List(ctx context.Context, prefix, cursor string) (Page, error)

	// Close ends what the table itself started. The driver makes no more calls, and
	// those under way end soon.
	Close() error
}

// Page is a part of a listing.
type Page struct {
	Entries []Entry
	// Next is the cursor of the next page, empty after the last.
	Next string
	// Now is the table's clock when it read the page.
	Now time.Time
}

// Entry is a record and its key.
type Entry struct {
	Key    string
	Record []byte
}

// Reader is implemented by tables that read a record without locking it. The
// driver looks into locks by it, and else by an Update that changes nothing.
type Reader interface {
	// Read returns the record of key, nil if there is none, and the clock.
	Read(ctx context.Context, key string) (record []byte, now time.Time, err error)
}

// Sweeper is implemented by tables that find the records to be forgotten by
// themselves, for instance by a column that has the time of [End]. Without it the
// driver reads the table page by page.
type Sweeper interface {
	// Sweep removes up to limit of the records that may be forgotten by the
	// table's clock, and returns how many it removed. It must not remove a
	// record that is replaced at the same time.
	Sweep(ctx context.Context, limit int) (removed int, err error)
}

// Transactor is implemented by tables that can replace several records in one
// transaction. The driver then makes all changes by it. Renewals of many
// leases become a few transactions, hints are sent by the transaction that gives
// rise to them, and ids for a single use ([driver.Request] SingleUseID) have records
// of their own instead of a place in the record of their lock.
type Transactor interface {
	Table
	// Transact replaces the records of all items, or of none. The keys are
	// sorted and differ. A table that locks records locks them in this order,
	// so that two transactions cannot wait for each other. f is called once for
	// each item, after its record has been locked; if the transaction is
	// repeated, f is called again for all of them. What is said about f, now and
	// the error of [Table] Update applies here too.
	//
	// If there are several items, the table may leave out those whose records
	// somebody else has locked, and return their indexes: the driver asks again
	// for each by itself.
	Transact(ctx context.Context, items []Item, f func(i int, found Found) Change) (skipped []int, err error)
}

// Exchanger is implemented by a [Transactor] that can replace one record by one
// request, without a lock: a conditional write. The driver then does so where it can.
// It often knows the record and the clock from the last call, and needs no reading.
type Exchanger interface {
	Transactor
	Reader
	// Exchange makes x.Change if the record is still x.Before, byte by byte, and the
	// clock shows a time between x.From and x.Until when the request arrives. Otherwise
	// it changes nothing and returns what it has found; the driver then asks again.
	// found.Now is the clock, read while the call lasts, in either case. If it is zero
	// nothing was changed, and the driver takes a transaction: if x.Enters and the table
	// cannot save that, for instance.
	//
	// The table gives up a request that waits for another one after some seconds, by its
	// own clock, so that the request has no effect later, when no caller expects it.
	Exchange(ctx context.Context, x Exchange) (done bool, found Found, err error)
}

// Exchange is a conditional change of one record. A nil record is none.
type Exchange struct {
	Key         string
	Before      []byte
	From, Until time.Time
	Change
}

// Item is what a transaction replaces.
type Item struct {
	Key string
	// Note is the key of a second record that is read, and may be replaced, with
	// the record of Key. A note is used only together with its Key, so it needs
	// no lock of its own; it must be read after the record of Key was locked, and
	// see all that was written under that lock. Two transactions with one Key do not
	// overlap if either changes a note, also if there is no record of Key, or it
	// stays as it is. Empty is none.
	Note string
}

// Found is what the table has of an item. A nil record is none.
type Found struct {
	Record, Note []byte
	Now          time.Time
	// Shut lets nobody in for a moment: it keeps the lock closed for a quarter of a
	// second, and a lease exclusive that is to become shared: the driver then answers
	// with [driver.ErrUnavailable]. A table sets it when it calls f again because it
	// could not save a change that Enters.
	Shut bool
}

// Change is what takes its place. A nil record removes the record, and one that
// equals the record found need not be written.
type Change struct {
	Record, Note []byte
	// Enters tells that the lock is granted to somebody who does not join those
	// who have it: it changes hands. So does an exclusive lease that becomes shared,
	// since others may join it from then on. A table that can keep a lock from that
	// looks at it.
	Enters bool
	// Messages are to be sent if the transaction is committed, in this order.
	// They may be lost, so their sending must not make the transaction fail.
	Messages []Message
}

// Message is a hint on its way to another driver, or to all, if its Address is
// [Everybody]. It is text of at most 2 KB.
type Message struct {
	Address, Body string
}

// Everybody is the address of a message to all subscriptions of the table, in all
// processes. It tells holders that their leases were broken. A subscription never has
// this address. The driver that sends such a message may hear it too, or not. A table that
// ignores it loses nothing but speed: holders then learn of a break when they renew.
const Everybody = "everybody"

// Listener is implemented by tables that deliver messages. Without it waiters
// ask from time to time.
type Listener interface {
	// Listen has receive called for every message that is sent to the address of
	// the subscription or to [Everybody], one at a time. receive does not block. An empty body
	// says that messages may have been lost: after a connection was made anew,
	// for instance. Subscriptions of a table have different addresses, which
	// consist of letters, digits, "-" and "_"; what is random in one has at least
	// 16 letters and digits, or is a number.
	Listen(receive func(body string)) (driver.Subscription, error)
}

// Notifier is implemented by tables that can also send messages, unless they are
// a [Transactor], which sends them by itself.
type Notifier interface {
	Listener
	// Notify sends messages, after what they tell of was written. Its error is
	// not reported: messages may be lost. It is not called for messages to the
	// driver itself, but for those to [Everybody].
	Notify(ctx context.Context, messages []Message) error
}

// UpdateBy is the Update of a table that has Transact.
func UpdateBy(ctx context.Context, t Transactor, key string, f func(record []byte, now time.Time) (next []byte, err error)) error {
	var refused error
	_, err := t.Transact(ctx, []Item{{Key: key}}, func(_ int, found Found) Change {
		var next []byte
		if next, refused = f(found.Record, found.Now); refused != nil {
			next = found.Record
		}
		return Change{Record: next}
	})
	if refused != nil {
		return refused
	}
	return err
}
