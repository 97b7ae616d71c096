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
// only if the table is certainly unchanged; every other error means that
// the outcome is unknown. An error of f is not an error of the table.
type Table interface {
	// Update atomically replaces the record of key by the result of f. No other update
	// of the key takes effect between the reading of record and the writing of next. A
	// nil record means that there is none, and a nil next removes the record. If next
	// equals record, the table need not write. f must not keep or change record; next
	// belongs to the table.
	//
	// now is the clock of the table, read after the call began, and in a table that
	// locks records after the lock was acquired. See the package documentation for its
	// requirements.
	//
	// If f returns an error, Update leaves the record unchanged and returns that error,
	// possibly wrapped. It may call f again, with a record that it has read again, as
	// long as no earlier result of f has been or will be written. It returns nil only
	// when the last next is certainly written, so that no reader will see an older
	// record.
	Update(ctx context.Context, key string, f func(record []byte, now time.Time) (next []byte, err error)) error

	// List returns a page of the records whose keys begin with prefix, in any order.
	// The cursor is empty for the first page, and then the previous page's. Records
	// that exist during the whole listing are returned at least once. Expired records
	// can be left out.
	List(ctx context.Context, prefix, cursor string) (Page, error)

	// Close ends the table's own work. The driver makes no more calls, and calls under
	// way end soon.
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

// Reader is implemented by tables that read a record without locking it. The driver
// inspects locks by it, and otherwise by an Update that leaves the record unchanged.
type Reader interface {
	// Read returns the record of key, or nil, and the clock.
	Read(ctx context.Context, key string) (record []byte, now time.Time, err error)
}

// Sweeper is implemented by tables that find the records to be forgotten by
// themselves, for instance by a column that has the time of [End]. Without it the
// driver reads the table page by page.
type Sweeper interface {
	// Sweep removes up to limit of the records that may be forgotten by the
	// table's clock, and returns how many it removed, also with an error. It must not
	// remove a record that is replaced at the same time.
	Sweep(ctx context.Context, limit int) (removed int, err error)
}

// Transactor is implemented by tables that can replace several records in one
// transaction. The driver then makes all changes by it. Renewals of many
// leases become a few transactions, hints are sent by the transaction that gives
// rise to them, and ids for a single use ([driver.Request] SingleUseID) have records
// of their own instead of a place in the record of their lock.
type Transactor interface {
	Table
	// Transact replaces the records of all items, or of no item. The keys are sorted and
	// differ. A table that locks records locks them in this order, so that two
	// transactions cannot wait for each other. f is called once for each item, after its
	// record has been locked; if the transaction is repeated, f is called again for all
	// items. The rules of [Table] Update for f, now and the error apply here too.
	//
	// If there are several items, the table may leave out items whose records another
	// transaction has locked, and return their indexes: the driver then repeats each of
	// them separately.
	Transact(ctx context.Context, items []Item, f func(i int, found Found) Change) (skipped []int, err error)
}

// Exchanger is implemented by a [Transactor] that can replace one record by one
// request, without a lock: a conditional write. It has a counter of tokens ([Found]). The driver
// often has the record and the clock from the last call, and need not read.
type Exchanger interface {
	Transactor
	Reader
	// Exchange makes x.Change if the record is still x.Before, byte by byte, and the
	// clock is between x.From and x.Until when the request arrives. Otherwise the record
	// stays unchanged, Exchange returns its present content, and the driver tries again.
	// found.Now is the clock, read during the call, in either case. If it is zero the
	// record is unchanged, and the driver uses a transaction, for example if x.Enters
	// and the table cannot save that.
	//
	// The table gives up a request that waits for another one after some seconds, by its
	// own clock, so that the request has no effect later, when no caller expects it.
	Exchange(ctx context.Context, x Exchange) (done bool, found Found, err error)
}

// Exchange is a conditional change of one record. A nil record is an absent one. With a nil Before,
// Mints is set. Note, Messages and Token are not.
type Exchange struct {
	Key         string
	Before      []byte
	From, Until time.Time
	// If Change.Mints is set the table writes the next value of its counter, or the number that it
	// finds there if that is greater, into the bytes 9 to 16 of the new record, big-endian, and
	// returns the written record in found if done. The value is taken when no other call can give
	// the key a token before this one.
	Change
}

// Item names a record that a transaction replaces.
type Item struct {
	Key string
	// Note is the key of a second record that is read, and may be replaced, with the
	// record of Key. A note is used only together with its Key, so it needs no lock of
	// its own; it must be read after the record of Key was locked, and include all
	// writes under that lock. Two transactions with one Key do not overlap if either
	// changes a note, even if the record of Key is missing or unchanged. If Note is
	// empty, there is no note.
	Note string
	// Also is the key of a third record, which is read after the record of Key was locked, and
	// is not changed. If it is empty, there is none.
	Also string
}

// Found is the table's content for an item. A nil record is an absent one.
type Found struct {
	Record, Note, Also []byte
	Now                time.Time
	// Token is the next value of the table's counter of tokens, taken after the record was
	// locked, or 0 if it has none. It is only needed in a transaction of one item, and if
	// [Change] Mints. The record of a lock is then removed with its release, since the counter
	// remembers for all locks.
	//
	// A value is greater than all before it. It is not ahead of the clock, unless the clock was
	// stepped back or [Change] asks for more, and at most an hour behind it. After the table has
	// lost data it is greater than before, if the clock was right: for instance, each new
	// connection raises the counter to the clock.
	Token int64
	// Shut blocks new holders for a moment: it keeps the lock closed for a quarter of a
	// second, and a lease exclusive that is to become shared: the driver then answers
	// with [driver.ErrUnavailable]. A table sets it when it calls f again because it
	// could not save a change that Enters.
	Shut bool
}

// Change is the replacement. A nil record removes the record; a record equal to the one
// found need not be written.
type Change struct {
	Record, Note []byte
	// Enters reports whether the lock changes hands: a new holder does not merely join
	// the present holders. The same holds if an exclusive lease becomes shared, since
	// more holders may join from then on. Tables that can protect a lock from such
	// changes check this field.
	Enters bool
	// Mints reports that the record has a new token. A table that could not give one calls f again.
	Mints bool
	// Token is a value that the table's counter passes by this transaction, or 0. It is at
	// most a second ahead of the clock, for a quorum.
	Token int64
	// Messages are to be sent if the transaction is committed, in this order.
	// They may be lost, so their sending must not make the transaction fail.
	Messages []Message
}

// Message is a hint on its way to another driver, or to all, if its Address is
// [Everybody]. It is text of at most 5 KB, and seldom above 1 KB.
type Message struct {
	Address, Body string
}

// Everybody is the address of a message to all subscriptions of the table, in all
// processes. It informs holders that their leases were broken. No subscription has this
// address. The sender may or may not receive its own message. A table that ignores
// Everybody is only slower: holders then notice a break at a renewal.
const Everybody = "everybody"

// Listener is implemented by tables that deliver messages. Without it waiters
// ask from time to time.
type Listener interface {
	// Listen makes a subscription that calls receive for every message to its address
	// or to [Everybody], one at a time. receive does not block. An empty body means that
	// messages may have been lost, for example because of a new connection.
	// Subscriptions of a table have different addresses, which consist of letters,
	// digits, "-" and "_"; the random part of one has at least 16 letters and digits, or
	// is a number.
	Listen(receive func(body string)) (driver.Subscription, error)
}

// Notifier is implemented by tables that can also send messages. A [Transactor] need not
// implement it, because it sends them in its transactions.
type Notifier interface {
	Listener
	// Notify sends messages, after the changes that they report were written. Its error
	// is ignored: messages may be lost. It is not called for messages to the driver
	// itself, but for messages to [Everybody].
	Notify(ctx context.Context, messages []Message) error
}

// UpdateBy implements the Update of a table that has Transact.
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
