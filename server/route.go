package server

import (
	"net/http"

	"github.com/leasehold-go/leasehold/server/internal/api"
)

// Route is one operation of the interface. Requests are matched against the table of all routes,
// and a test compares the OpenAPI document with it.
type Route = api.Route

// Parameter is a parameter of a route, in the query or in a header.
type Parameter = api.Parameter

// Cause is one reason why a request fails. Each has a problem type of its own, which
// docs/http.md documents.
type Cause = api.Cause

// The causes.
var (
	Held            = api.Held
	Gone            = api.Gone
	Broken          = api.Broken
	Released        = api.Released
	Moved           = api.Moved
	NotHeld         = api.NotHeld
	Mismatch        = api.Mismatch
	Invalid         = api.Invalid
	TooLarge        = api.TooLarge
	Unauthenticated = api.Unauthenticated
	Forbidden       = api.Forbidden
	NotFound        = api.NotFound
	NotAllowed      = api.NotAllowed
	TooMany         = api.TooMany
	Unsupported     = api.Unsupported
	Unavailable     = api.Unavailable
	Overloaded      = api.Overloaded
	Draining        = api.Draining
	Unknown         = api.Unknown
	Unprotected     = api.Unprotected
	Failed          = api.Failed
	Internal        = api.Internal
)

// Causes returns all causes, in the order in which they are documented.
func Causes() []*Cause { return api.Causes() }

// route is a route with its handler.
type route = api.Entry[handler]

// handler answers a request, or returns an error, which the caller answers as a problem.
type handler func(s *Server, w *answer, r *http.Request) error
