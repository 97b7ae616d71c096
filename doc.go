// Package leasehold gives locks that work across machines.
//
// A lock here is a lease: it is granted for a time, renewed while its holder
// lives, and its end is always noticed.
//
//	client, err := leasehold.New(store)
//	…
//	lease, err := client.Mutex("orders/42").Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer lease.Release()
//	return charge(lease.Context(), lease.Token())
//
// # Promises
//
// Exclusion (P1): while a lease's context is live, no other lease that
// conflicts with it has a live context. This assumes that the store keeps what
// it acknowledged for one TTL, and that the rates of clocks differ by less than
// the drift factor. Nothing depends on clocks of different machines agreeing.
//
// Loss (P2, P3): the holder learns of a loss at the latest when its local
// deadline passes, counted from before the request that the store confirmed
// last; also if the store hangs, the network is cut, or the process was stopped
// and woken. One failed renewal loses nothing: it is repeated until the
// deadline.
//
// Fencing (P4): every grant carries a token greater than every token given
// before for that key. A resource that refuses smaller tokens is safe from a
// holder that does not notice its loss.
//
// Waiting (P5, P6): waiters are served in the order of their arrival at the
// store, and woken by it. If every wake-up is lost a waiter asks by itself: the
// head of the queue when the holder's lease ends, the first of each client every
// second, everyone at least every 5 seconds, and every half second from the
// first wake-up that was missed. A waiter that has died costs the others at most
// one second if the lock was handed to it, two if it only stands before somebody
// for whom there is room, and another one if its successor has died too; four if
// it hears no wake-ups, because the store or its user cannot deliver them: it is
// never handed the lock, so that only the end of its ticket shows its death.
//
// Exactly once (P7): every acquisition has an id. A request whose answer was
// lost is repeated with it, and has the effect and the answer of one.
//
// Unknown (P8): when the store did not answer, the error matches ErrUnknown,
// and what may have been left behind is cleaned up in the background.
//
// Nothing left (P9): cancelled, timed out, crashed or released, every key in
// the store disappears by itself, and no goroutine stays.
//
// What is not promised: a lease cannot stop a holder that ignores its context.
// Replication that is asynchronous can lose a grant when a server fails over.
package leasehold
