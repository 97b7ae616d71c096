// Package quorumdriver combines several stores into one driver, so that locks survive the
// loss of a minority of them. It is the Redlock algorithm with fencing tokens, and with a
// guard against stores that come back without their data.
//
//	nodes := []driver.Driver{a, b, c, d, e} // independent of one another
//	store, err := quorumdriver.New(nodes)
//	client, err := leasehold.New(store)
//
// Any store serves as a node. Two nodes must not lose data together, so none may be a
// replica of another. All processes use the same nodes, in any order. The mark of a node
// states the size of its quorum: a process that uses three of five nodes, or names one
// server twice, is refused with [driver.ErrInvalid]. Each process compares the marks of a
// majority once, with its first request. To change the number of nodes, end all processes
// and remove the marks: on a Redis server the key prefix + "\x1fm", of a directory store
// the whole directory.
//
// # What it does
//
// The driver asks all nodes at once and answers as soon as a majority has answered. The
// majority is counted over all nodes, also over those that cannot be reached. Each node
// has a timeout of its own ([WithTimeout]); a node that hangs delays no other node.
//
// If no majority grants a lease in time, the driver releases it at every node, in the
// background where a node is slow. The release names the visit of this process
// ([driver.Request].Visit), so a lease that another process was granted with the same id
// stays, as between replicas of a service. If several processes asked with one id at the
// same time and no request was granted, no process can release these votes: they stay
// until the requested lease would end. Votes that are split between contenders are
// released and asked for again after a random time.
//
// A lease is renewed if a majority renews it. If a node has forgotten the lease, because
// it was restarted, the driver then acquires it there again, which makes up for the loss.
// It does so only after a majority has renewed, since otherwise a lease that is over
// could come back.
//
// [driver.ErrNoQuorum] means that a majority did not answer, and names the nodes that did
// not. If a majority answers and the lock is held, the answer is Busy.
//
// Mutexes, re-entry and read-write locks work. A majority cannot keep limits (semaphores)
// or the order of waiters; such locks are refused with [errors.ErrUnsupported] when they
// are made. A mutex that does not insist on the order is served without one: a waiter
// asks again every 200 to 400 ms, when the holder's lease would end, and when a node
// hints that the lock is free.
//
// # Why a lock has one holder
//
// While a lease is live, a majority of nodes has it: each node counts its time from a
// moment after the request was sent, and the holder from before, less the drift of
// clocks. Two majorities have a node in common, and that node grants the lock to one of
// them. This holds as long as a node keeps what it has granted.
//
// # A node that loses its data
//
// A node that was restarted without its data would grant the same lock again. So each
// node carries a mark that is lost with the data. A node without a mark refuses to grant
// a key whose token it does not know, and the driver then reads the marks of all nodes.
// If other nodes have marks, the node gets a mark that counts only after a quarantine of
// [WithMaxTTL], a margin, and twice [WithMaxSkew]. Its vote is missing until then, and afterwards no
// lease that it has lost can be live. If no node has a mark and all can be reached,
// they are new: the driver reserves each of them before it marks them, so that no other
// process acts on outdated marks. A node reads its mark only if the token of a key
// is unknown, so the guard costs nothing otherwise. It needs nodes that are a
// [driver.Marker]; other nodes are trusted.
//
// The guard does not detect a node that returns with old data. Nodes must save every write
// (appendfsync always) or no write. Restart one node after another; if they do not save,
// wait for the quarantine in between. The first use of a quorum needs all nodes: with one
// of them down the remaining nodes wait for the quarantine, because they might have lost
// data too. [WithoutGuard] switches the guard off.
//
// # Why tokens rise
//
// Each node counts by itself, so the greatest token of a majority does not suffice: if A
// is at 100, and B and C at 10, a holder by A and B gets 101, and the next one, by B and
// C, 12. The driver therefore writes back the greatest token that the majority granted:
// before it returns the token, every node of a majority that holds the lease has it, and
// grants a greater one next.
//
// Let T be the token of a lease, W the majority that has it, and L a later exclusive
// lease, granted by the majority M. W and M have a node n in common. At n, L was granted
// after T had been written there: had L been granted before, L would still have been
// held, and the write would have found the first lease gone. So n granted L a token above
// T, and the token of L, which is at least that, is above T too. A node keeps its
// knowledge of T until a clock that all nodes share to within [WithMaxSkew] has passed
// it: what counts outlives its last token by an hour, and a node that lost it
// begins at the time of the end of its quarantine or later. (A token that a caller's
// minimum has put ahead of all clocks is beyond that.)
//
// The write is usually unnecessary: the previous holder left the nodes at one count, so
// they grant the same token. It takes one more round after a node was away, and when
// several requests overlap: of one key or, where the keys of a node share a counter as on
// Redis, of any. Tables take it after the first use of a key, too. Nodes that differ although a majority agrees are brought to one count by the release.
//
// Readers that hold the lock together may have the same token. [WithoutFencing] switches
// the tokens off; they are 0 then.
package quorumdriver
