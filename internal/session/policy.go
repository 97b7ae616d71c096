package session

import "context"

// Policy is where those who use the engine differ. The zero value is the library's.
// A service asks for clients that choose the ids of their leases themselves, and
// may ask for one lease several times at once, here or by way of another replica.
type Policy struct {
	// AskFirst has a waiter take its lock by an Acquire of its own: a hint that the
	// lock was handed over, or a renewal that grants it, only tells that its turn has
	// come, and the first of a process's waiters asks whenever its ticket needs it.
	// Only an Acquire makes the lease that of this visit, too, and tells whether it
	// repeats a grant. Otherwise a lock that was handed over counts from the hint.
	AskFirst bool
	// GoneAnswers has an Acquire that is answered Gone be answered so: the id was
	// given up by those who chose it. Otherwise it was given up on the way, and
	// what became of it is unknown.
	GoneAnswers bool
	// CallContext returns the context of a request to the store, for whoever asks
	// under ctx. A service carries through what it has begun, so that it can be undone
	// without the id being refused from then on. Nil has requests end with ctx.
	CallContext func(ctx context.Context) context.Context
}

// call returns the context of a request to the store.
func (p *Policy) call(ctx context.Context) context.Context {
	if p.CallContext == nil {
		return ctx
	}
	return p.CallContext(ctx)
}
