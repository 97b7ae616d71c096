// Package quorumdriver makes one driver of several, so that locks survive the loss
// of a minority of them: Redlock, with fencing tokens and with a guard against
// nodes that forget.
//
//	nodes := []driver.Driver{a, b, c, d, e} // independent of one another
//	store, err := quorumdriver.New(nodes)
//	client, err := leasehold.New(store)
//
// Any stores serve as nodes; they must not lose data together, so neither may one be
// a replica of another. Every process gives the same ones, in any order. The mark of a
// node says of how many it is one, so that a process which means three of five nodes, or
// names one server twice, is refused with [driver.ErrInvalid]; it compares the marks of a
// majority once, with its first request. Whoever changes the number of nodes ends all
// processes first, and removes the marks: of a Redis server the key prefix + "\x1fm", of
// a directory all of it.
//
// # What it does
//
// All nodes are asked at once, and the answer is given as soon as a majority of
// them has answered, counted over all nodes and not over those that can be
// reached. Each has a time of its own ([WithTimeout]); one that hangs costs the
// others nothing. A lease that a majority did not grant in time is given back
// everywhere, in the background where a node is slow, and by a name of the process that
// asked ([driver.Request].Visit): another one that asks with the same id, as replicas of a
// service do, keeps what it was told. What several processes have asked for with one id at
// the same time, and none was told, belongs to none of them: such votes stay until the end of
// the lease that was asked for. If the votes are split between
// contenders, they are given back and asked for again after a random time.
//
// A lease is renewed if a majority renews it. A node that has forgotten it, because it
// was restarted, is then asked to let it in again, which makes up for the loss of
// that node; but only then, since otherwise a lease that is over could come back.
//
// [driver.ErrNoQuorum] says that a majority did not answer, and names the nodes that
// did not. That a majority answers and the lock is held is the answer Busy.
//
// Mutexes, re-entry and read-write locks work. What a majority cannot keep safe is
// refused with [errors.ErrUnsupported] when the lock is made: limits (semaphores),
// and the order of those who wait. A mutex that does not insist on the order is
// served without it: a waiter asks again every 200 to 400 ms, when the holder's time is
// over, and when a node gives a hint that the lock is free.
//
// # Why one at a time
//
// While a lease is live, a majority of nodes has it: each counts its time from a moment
// after the request was sent, and the holder from before, less the drift of clocks. Two
// majorities have a node in common, and that node lets in one at a time. It holds
// as long as a node keeps what it has granted.
//
// # A node that forgets
//
// A node that was restarted without its data would grant again what it has granted. So
// each node carries a mark that is lost with the data. A node without one refuses to
// let anybody into a room of which it knows no token; the driver then looks at all
// nodes. If others have their marks, the node gets one that counts only after
// [WithMaxTTL] and twice [WithMaxSkew]: until then its vote is missing, and then no lease
// that it has forgotten can be live. If none has one, and all can be reached, they are
// new; each is reserved before it is marked as that, so that nobody acts on an old look. The mark is looked at only where the token of a key is unknown, so it costs
// nothing otherwise. It is for stores that are a [driver.Marker]; a node of another
// kind is trusted.
//
// Nodes that save their data now and then and come back with old data are not noticed:
// let them save everything (appendfsync always) or nothing. Restart one node after
// another, and wait for the quarantine in between if they save nothing. The first use of a
// quorum needs all nodes; with one of them down the others have to wait for the
// quarantine, because they might have forgotten too. [WithoutGuard] switches the guard
// off.
//
// # Why tokens rise
//
// Each node counts by itself, so that the greatest token of a majority says nothing: if A
// stands at 100, and B and C at 10, a holder by A and B gets 101, and the next, by B and
// C, 12. Therefore the token, which is the greatest that a majority has granted, is
// written back: before it is handed out every node of a majority on which the lease is
// held has it, and so will grant a greater one next.
//
// Let T be the token of a lease, W the majority that has it, and L a later exclusive
// lease, granted by the majority M. W and M have a node n in common. At n, L came in
// after T had been written there: had it come before, it would still have been inside, and
// the write would have found the first lease gone. So n granted L a token above T, and
// the token of L, which is at least that, is above T too. What n knows of T does not get
// lost before a clock that every node shares to within [WithMaxSkew] has passed it:
// the count of a key outlives its last token by an hour, and a node that lost it begins
// at the time of the end of its quarantine or later. (A token that a caller's minimum has
// put ahead of all clocks is beyond that.)
//
// Mostly the write costs nothing: the holder before has left the nodes at one count, so
// that they grant the same token, and there is nothing to write. It takes one more
// round after the first use of a key, after a node was away, and where several ask at
// once. Nodes that differ although a majority agrees are brought to one count by the
// release.
//
// Readers that are inside together may have the same token. [WithoutFencing] switches the
// tokens off; they are 0 then.
package quorumdriver
