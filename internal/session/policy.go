package session

import "context"

// Policy holds the differences between users of the engine. The zero value fits the
// library. A service acts for clients that choose the ids of their leases, and that may
// request one lease several times at once, here or through another replica.
type Policy struct {
	// AskFirst makes a waiter take its lock by an Acquire of its own. A hint about a
	// hand-over, or a renewal that grants the lock, then only means that the waiter's
	// turn has come, and the first of a process's waiters asks whenever its ticket needs
	// it. Only an Acquire binds the lease to this visit and reports repeated grants.
	// Without AskFirst a handed-over lock counts from the hint.
	AskFirst bool
	// GoneAnswers accepts Gone as the answer to an Acquire: the client gave its id up.
	// Otherwise an id can only have been given up after an unanswered request, so the
	// outcome is unknown.
	GoneAnswers bool
	// CallContext returns the context of a store request made under ctx. A service
	// completes requests that it began, so that it can undo them without making the
	// store reject the id. If nil, requests end with ctx.
	CallContext func(ctx context.Context) context.Context
}

// call returns the context of a request to the store.
func (p *Policy) call(ctx context.Context) context.Context {
	if p.CallContext == nil {
		return ctx
	}
	return p.CallContext(ctx)
}
