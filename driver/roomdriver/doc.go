// Package roomdriver makes a store of every table that can replace one record
// atomically: a table of a database, a bucket with conditional writes, a
// key-value store.
//
// A [Table] has three methods. [New] makes a driver of it that knows every kind
// of lock, with queue, tokens, inspection and breaking, and passes the
// conformance suite [github.com/leasehold-go/leasehold/driver/drivertest]. A table
// implements further interfaces for what else it can do:
//
//	Reader      look at a lock without locking its record
//	Notifier    wake waiters in other processes; Bus does it within one process
//	Transactor  renew many leases in one transaction, and send messages by it
//	Exchanger   make most calls in one request, by conditional writes
//	Sweeper     remove what may be forgotten by itself
//
// [FromSwapper] makes a table of what can compare and swap. A store that cannot
// keep a record of some hundred bytes, but knows "set if absent with a time to
// live", is a matter of [driver.FromBasic] instead.
//
// The calls of one driver about one key take turns, and those that arrive while one
// is under way are made together by the next update: the record of a long queue is not
// written once for each waiter.
//
// # What a table promises
//
// Of two updates of one key the later one reads what the earlier one wrote.
// Update returns nil only when the record is certainly written, and an error that
// matches [driver.ErrUnavailable] only if it certainly is not. Every other error
// means that nobody knows; the driver passes it on, sends no hints, and whoever
// asks again with the same lease id gets the answer of asking once. A table that
// repeats a failed update calls f again, with a record that it has read anew; it
// does not repeat an update whose outcome is unknown.
//
// No call of a table waits for longer than its context. A transaction that is
// stopped between reading and writing keeps all others from the lock, so a
// database should end it by itself after seconds.
//
// # The clock
//
// All times in a record are of one clock, the table's. No promise depends on the
// clocks of the processes that use it.
//
//   - It is read after the call has arrived, never before, and in a table that
//     locks records after the lock was gained. A lease then lives at least until
//     its holder believes (exclusion, P1), and a waiter is not told of a time that
//     has passed (P5).
//   - Its rate differs from that of the holders' clocks by less than their drift
//     factor, one percent by default (P1, P2).
//   - A step forward ends leases early, and then two may hold one lock (P1). The
//     holder of the earlier one notices at its next renewal.
//   - A step back keeps locks of dead holders closed for as much longer (P5), and
//     nothing worse: a token follows the last one, whatever the clock shows (P4).
//     Only when a record was forgotten does the clock alone make the token. So
//     records are remembered for an hour after their last token ([WithMemory]),
//     and the clock must not be stepped back by more than that.
//   - It counts microseconds since the Unix epoch, since tokens are seeded with it:
//     a token is greater than all of a store that was lost, if the clock was right
//     before and after. Milliseconds do as well.
//
// # Who removes what
//
// A record may be forgotten when nobody holds the lock or waits, no delay or
// forbidden id counts any more, and its token is older than the memory. [End]
// reads that time out of a record; a table can keep it in a column and look for it.
// Without a memory a release removes the record at once. By default a record outlives
// its lock, and the conformance suite does not see whether the table removes it: play the
// suite a second time with [WithMemory](0), and the suite for tables,
// [github.com/leasehold-go/leasehold/driver/roomdriver/tabletest].
//
// The driver sweeps: soon after the first record that it writes, so that programs
// which end at once contribute, and then once in a minute ([WithSweep]) until all
// that it wrote is over. It asks a [Sweeper] for at most 1000 records at a time,
// and reads other tables page by page. So what dead processes leave is removed by
// those who use the table next.
//
// # Records
//
// A record is replaced as a whole. Equal records have equal encodings, so that a
// call which changes nothing writes nothing. Version 1:
//
//	1 byte    version: 1
//	8 bytes   end, in ms, big-endian; 2^63-1 is never
//	int       last token; arrivals so far; limit; closed until (ms)
//	str int   the waiter that was told to ask, and when (ms)
//	list      holders, in the order of entry
//	list      waiters, in the order in which they are served
//	map       name → until (ms), reason: "+id" forbidden, "~id" broken, "!address" suspect
//	map       8 bytes of an id's hash, little-endian → 2 × until (ms), + 1 if it was released
//
// A holder or waiter is id, owner, re-entrant, labels (map), since (ms), mode,
// policy, weight, TTL, confirmation window, delay (ms each), minimum token, address,
// rank, expiry (ms), token, when it was called (ms), confirmed, visit. An int or a
// bool is a zigzag varint; a str, list or map begins with its length as an unsigned
// varint, and the keys of a map are sorted.
//
// A record that was cut, and everything else that is no record of a known version, is
// refused with [driver.ErrMismatch] and left as it is. A program reads the versions
// up to its own, so programs are updated before one of them writes a new version.
//
// Records whose keys begin with the byte 1 are the driver's: the mark of
// [driver.Marker], whose name stands where other records have the waiter that was
// told to ask, and which has no end; and ids that were used once.
//
// # Less than everything
//
// The driver of this package ignores nothing. A driver that is written without it
// may ignore, or refuse by [driver.Limited]:
//
//	Owner, Labels, Since      ignored if it is no Inspector; Owner counts with Reenter
//	Uncontended (of a Ref)    always ignored without harm: it is a guess
//	TicketTTL, ConfirmWindow  ignored without a queue: Acquire answers Busy
//	HintAddress               ignored if it is no Watcher
//	Policy                    FIFO and Barging ignored without a queue, the others refused
//	Ordered                   refused without a queue, ignored with one
//	Mode, Limit, Resize, Downgrade, Weight, Reenter, LockDelay, MinToken, Guard
//	                          refused where they ask for what it does not do
//	Token, Level (of a Ref)   ignored if it mints no tokens
//	KeepClosed (of a Ref)     ignored if it keeps nothing closed: a job that is
//	                          over sooner than clocks differ may run twice
//	Visit                     ignored if nobody asks with one id by several ways; else a
//	                          release may end a lease of which another was told
//	RejectIDFor, SingleUseID  ignored: a request that was delayed on its way can then
//	                          take a lock for a caller that has gone
//
// Key, ID and TTL are never ignored, and neither is that Renew creates no lease.
package roomdriver
