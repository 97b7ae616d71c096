// Package matrix tries every public entry of the library and every route of the service under
// every kind of fault, in virtual time. Type fate describes the faults, functions locks, others,
// routes and pages the entries.
//
// Two clients share one lock. The first calls the entry, and the fault meets its first request or
// its second, or all of them while it lasts. Then the fault ends, and the second client asks for the
// lock. A play fails unless
//
//   - leases do not overlap, tokens rise (P1, P4), and a client that counts on its lease has it in
//     the store;
//   - the fault explains the error. After an error that excludes any effect, the store has no lease
//     and no ticket of the call (P8). An ended lease does not return (P7);
//   - the call returns at once if its context has ended, and within 6 s if its context ends, its
//     client is closed or it takes no context;
//   - a loss ends the lease's context by the deadline, even if the logger is slow (P2). One disturbed
//     message loses no lease (P3);
//   - a live lease is still held some leases later, its release succeeds, the second client gets the
//     lock within two leases, and no key is left (P3, P5, P9).
//
// A cell is one to twelve plays, of which at least one must have met its fault.
package matrix
