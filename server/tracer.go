package server

import (
	"context"
	"net/http"

	"github.com/leasehold-go/leasehold/driver"
)

// Tracer makes spans of requests, and of what the store is asked for them. It
// is safe for concurrent use, and must be quick.
type Tracer interface {
	// Request begins the span of a request. ctx has it, and is derived from the
	// request's context. It may set x.Trace to the id of the span's trace, which
	// is the request's id then. When end is called x tells how it was answered.
	Request(r *http.Request, x *Exchange) (ctx context.Context, end func())
	// Store begins the span of one call of the store, whose verb is acquire,
	// renew or release. end is given its error.
	Store(ctx context.Context, verb string) (_ context.Context, end func(error))
}

// traced is a store whose three verbs make spans.
type traced struct {
	driver.Driver
	tracer Tracer
}

// Acquire implements [driver.Driver].
func (t traced) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	ctx, end := t.tracer.Store(ctx, "acquire")
	got, err := t.Driver.Acquire(ctx, req)
	end(err)
	return got, err
}

// Renew implements [driver.Driver].
func (t traced) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	ctx, end := t.tracer.Store(ctx, "renew")
	var failed error
	t.Driver.Renew(ctx, refs, func(i int, got driver.Reply, err error) {
		if err != nil {
			failed = err
		}
		each(i, got, err)
	})
	end(failed)
}

// Release implements [driver.Driver].
func (t traced) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	ctx, end := t.tracer.Store(ctx, "release")
	got, err := t.Driver.Release(ctx, ref)
	end(err)
	return got, err
}
