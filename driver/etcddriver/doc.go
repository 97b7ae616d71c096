// Package etcddriver keeps locks in etcd 3.4 or later, for programs that use such a cluster
// anyway. It supports every kind of lock.
//
//	store, err := etcddriver.Open("etcd://h1,h2,h3")
//	…
//	client, err := leasehold.New(store)
//
// # How it uses etcd
//
// Each lock in use is one key. A verb reads the clock, then the record, by a linearizable
// transaction, and replaces the record if its revision is still the same. If another process was
// faster, the verb begins again. A sweep removes the record of a released lock within two minutes,
// while a process uses the store.
//
// A request without an answer is sent again, to another member: no revision returns, so one of the
// requests takes effect at most, and the last answer shows whether one did. The outcome is unknown
// if no answer comes within the timeout, if the record was replaced in between, or if there was no record.
//
// Messages wake waiters: each is a key that disappears within a minute, and a process that waits
// has two watches.
//
// A record has some 100 bytes for each holder and waiter, and each change writes all of it. Etcd's
// limit of 1.5 MB for a request (--max-request-bytes) is reached by a queue of some ten thousand. An
// error that names the limit refuses the next waiter. Etcd keeps old revisions until they are compacted, and a
// queue of 1000 waiters writes more than a megabyte a second. Without --auto-compaction-retention it
// fills the quota of 2 GB in half an hour, and then etcd refuses all writes.
//
// # The clock
//
// Etcd has no clock that can be read. But its leader counts the rest of each etcd lease, also while
// no program runs, and shows it in whole seconds. The store has one lease of a year. The time at
// which it was granted and its age are the clock, so a lock of a dead holder opens for a job
// that comes once a day. No promise depends on the clocks of the machines.
//
//   - A time that is read is up to a second behind. So everything that is written lasts 1.1 seconds
//     longer than its caller expects, and the lock of a dead holder is free up to 2.1 seconds
//     after the end of its TTL.
//   - A new leader counts all leases from their beginning again. Every read shows the term of the
//     leader. In another one the first verb begins an epoch: another lease, and the greatest time by which
//     a write was decided, which is kept in a key. The time since that write is lost, so a lock of a
//     dead holder stays closed for at most its TTL more. A write requires the epoch by which it was decided.
//   - The clock never goes back behind a write, so tokens rise.
//   - The first epoch begins with the wall clock of a process. So tokens are greater than those of a
//     cluster that was lost, if that clock is right. It falls behind at changes of the leader, so a
//     cluster is no node of a quorum.
//
// # Requirements on the cluster
//
// An acknowledged write must survive. A cluster that is restored from a snapshot lacks the later
// locks and tokens: before that, stop all programs that use them for their longest TTL. Do not
// renew the lease of the key "clock" below the prefix by hand: the clock would stop for as long as its age.
//
// The user needs readwrite on the prefix.
//
// A member that hangs with its connections open costs a call a quarter of its timeout, then the call goes to
// another member. A waiter that watches there gets no message for up to twelve seconds, until the client
// closes the connection, and asks from time to time. A new leader takes about two seconds.
package etcddriver
