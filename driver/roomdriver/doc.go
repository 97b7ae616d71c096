// Package roomdriver makes a store from any table that can replace one record
// atomically: a table of a database, a bucket with conditional writes, a
// key-value store.
//
// A [Table] has three methods. [New] makes a driver from it that supports every kind
// of lock, with queue, tokens, inspection and breaking, and passes the
// conformance suite [github.com/leasehold-go/leasehold/driver/drivertest]. A table
// implements further interfaces for further abilities:
//
//	Reader      look at a lock without locking its record
//	Notifier    wake waiters in other processes; Bus does it within one process
//	Transactor  renew many leases in one transaction, and send messages by it
//	Exchanger   make most calls in one request, by conditional writes
//	Sweeper     remove expired records efficiently
//
// [FromSwapper] makes a table from compare-and-swap. For a store that cannot keep a
// record of some hundred bytes, but has "set if absent with a time to live", use
// [driver.FromBasic] instead.
//
// The calls of one driver about one key take turns, and calls that arrive while one is
// under way are made together by the next update: the record of a long queue is not
// written once for each waiter.
//
// # Duties of a table
//
// Of two updates of one key the later one reads the record written by the earlier one.
// Update returns nil only when the record is certainly written, and an error that
// matches [driver.ErrUnavailable] only if it certainly is not. Every other error
// means that the outcome is unknown; the driver returns it and sends no hints, and a
// repeated request with the same lease id gets the answer of a single request. A table
// that repeats a failed update calls f again, with a record that it has read again; it
// does not repeat an update whose outcome is unknown.
//
// No call of a table waits longer than its context. A transaction that is stopped
// between reading and writing keeps all other clients from the lock, so the database
// should end it after seconds.
//
// # The clock
//
// All times in a record are of one clock, the table's. No promise depends on the
// clocks of the processes that use it.
//
//   - It is read after the call has arrived, and in a table that locks records after
//     the lock was acquired. Otherwise a lease could end before its holder expects
//     (exclusion, P1), or a waiter could be given a time that has passed (P5).
//   - Its rate differs from that of the holders' clocks by less than their drift
//     factor, one percent by default (P1, P2).
//   - A step forward ends leases early, and then two clients may hold one lock (P1).
//     The holder of the earlier lease notices at its next renewal.
//   - A step back keeps locks of dead holders closed for as much longer (P5). Tokens
//     still rise: a token follows the last one, whatever the clock shows (P4).
//     Only after a record was removed does the clock alone determine the token. So
//     a table without a counter of tokens ([Found]) remembers records for an hour after
//     their last token ([WithMemory]), and its clock must not be stepped back by more
//     than that.
//   - It counts microseconds since the Unix epoch, since tokens are seeded with it:
//     a token is greater than all of a store that was lost, if the clock was right
//     before and after. Milliseconds do as well.
//
// # Removal of records
//
// A record may be removed when the lock is free without waiters, no delay or forbidden id counts, and
// either the counter has passed its token or the record is older than the memory. [End] reads that
// time out of a record; a table can keep it in a column and look for it.
// With a counter, or without a memory, a release removes the record at once. Otherwise a
// record outlives its lock, and the conformance suite does not see whether the table removes
// it: play the suite a second time with [WithMemory](0), and the suite for tables,
// [github.com/leasehold-go/leasehold/driver/roomdriver/tabletest].
//
// The driver sweeps: soon after the first record that it writes, so that short-lived
// programs contribute, and then once a minute ([WithSweep]) until all its records are
// over. It asks a [Sweeper] for at most 1000 records at a time,
// and reads other tables page by page. So the records of dead processes are removed by
// the table's next users.
//
// # Records
//
// A record is replaced as a whole. Equal records have equal encodings, so that a
// call without changes makes no write. Version 1:
//
//	1 byte    version: 1
//	8 bytes   end, in ms, big-endian; 2^63-1 is never
//	8 bytes   last token, big-endian
//	int       arrivals so far; limit; closed until (ms)
//	str int   the waiter that was asked to check, and when (ms)
//	list      holders, in the order of entry
//	list      waiters, in the order in which they are served
//	map       name → until (ms), reason: "+id" forbidden, "~id" broken, "!address" suspect
//	map       8 bytes of an id's hash, little-endian → 2 × until (ms), + 1 if it was released
//
// A holder or waiter is id, owner, re-entrant, labels (map), since (ms), mode,
// policy, weight, arrivals before it was called, confirmation window, delay (ms each), minimum token,
// address, rank, expiry (ms), token (0 is the last one), when it was called (ms), confirmed, visit,
// places (str). An int or a bool is a zigzag varint; a str, list or map begins with its length as an unsigned
// varint, and the keys of a map are sorted.
//
// A truncated record, and any other data that is not a record of a known version, is
// refused with [driver.ErrMismatch] and left unchanged. A program reads the versions
// up to its own, so programs are updated before one of them writes a new version.
//
// Records whose keys begin with the byte 1 belong to the driver: the mark of
// [driver.Marker], whose name is in the field of the waiter that was asked to check,
// and which has no end; and ids that were used once.
//
// # Partial drivers
//
// The driver of this package supports every feature. A driver that is written without it
// may ignore, or refuse by [driver.Limited]:
//
//	Owner, Labels, Since      ignored if it is no Inspector; Owner counts with Reenter
//	Uncontended (of a Ref)    always ignored without harm: it is a guess
//	TicketTTL, ConfirmWindow  ignored without a queue: Acquire answers Busy
//	HintAddress               ignored if it is not a Watcher
//	Policy                    FIFO and Barging ignored without a queue, otherwise refused
//	Ordered                   refused without a queue, ignored with one
//	Mode, Limit, Resize, Downgrade, Weight, Reenter, LockDelay, MinToken, Guard
//	                          refused where the driver lacks the feature
//	Token, Level (of a Ref)   ignored if it has no tokens
//	KeepClosed (of a Ref)     ignored if it cannot keep a lock closed: a job that is
//	                          shorter than the difference of clocks may run twice
//	Visit                     ignored if each id is used by a single process only; else a
//	                          release may end a lease that another process has received
//	RejectIDFor, SingleUseID  ignored: a delayed request can then take a lock for a caller
//	                          that has given up
//
// Key, ID and TTL are never ignored, and neither is that Renew creates no lease.
package roomdriver
