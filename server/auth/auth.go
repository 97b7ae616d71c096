// Package auth authenticates and authorizes the clients of a service, by bearer tokens and
// client certificates that are listed in a file.
package auth

import "net/http"

// Verb is a kind of right.
type Verb string

const (
	// Anyone: no right is needed.
	Anyone Verb = ""
	// Acquire: to take, renew and release locks, and to run operations.
	Acquire Verb = "acquire"
	// Read: to see holders and waiters.
	Read Verb = "read"
	// Break: to end a lease by force.
	Break Verb = "break"
)

// Principal is an authenticated client.
type Principal interface {
	// Name is shown in logs, and as the owner of locks without an owner.
	Name() string
	// May reports whether the principal has a right on the lock of a name. For
	// a listing the name is a prefix, all of which must be covered.
	May(verb Verb, name string) bool
}

// Authenticator finds the principal of a request.
type Authenticator interface {
	// Authenticate returns the principal of a request. An error is answered
	// with 401, and its text is logged, not sent. While the answer to a request
	// lasts it is authenticated again: a stream before each batch of events and
	// every 5 s, a wait every 5 s and when it ends. An error, or another
	// name, ends the stream or the wait. Authenticate has to be quick, and safe for
	// concurrent use.
	Authenticate(r *http.Request) (Principal, error)
}
