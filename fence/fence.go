// Package fence checks fencing tokens at the resource that a lock protects: it stores the
// greatest token so far, and refuses smaller tokens. A lock cannot stop a
// holder that does not notice the end of its lease; a resource that checks the token can.
//
// Announce the token with the first access to the resource, which is usually a read.
// Otherwise the write of an earlier holder may come between the read and the write of the
// next holder. An equal token is accepted only from the same owner.
//
// [SQL] fences data in a database, in the transaction that reads or writes them. [Redis]
// fences data in Redis, in one script. The package depends on the standard library alone.
// It can run where the resource is, with tokens that came over the network.
package fence

import (
	"errors"
	"fmt"
)

// Errors of this package, to be compared with errors.Is.
var (
	// ErrStale: the resource has seen a greater token, or an equal token of another owner. The
	// error is a [*StaleError]. The resource is unchanged.
	ErrStale = errors.New("stale token")
	// ErrInvalid: an argument is out of its bounds. The resource is unchanged.
	ErrInvalid = errors.New("invalid")
	// ErrRetry: another transaction made or raised the fence at the same time, and the database
	// gave up this one. Roll it back and repeat it; see [SQL.Raise].
	ErrRetry = errors.New("met another transaction")
)

// Bounds of a fence's arguments, equal to the bounds of a lock's token, owner and key.
const (
	MaxToken    = 1<<53 - 1
	MaxOwner    = 256
	MaxResource = 512
)

// Claim is the proof that a holder presents to the resource.
type Claim struct {
	// Token is the fencing token, 1 to MaxToken.
	Token int64
	// Owner is the owner of the lease, 1 to MaxOwner bytes. Leases of one re-entrant owner
	// share a token.
	Owner string
}

// Of returns the claim of a lease, such as a *leasehold.Lease.
func Of(lease interface {
	Token() int64
	Owner() string
}) Claim {
	return Claim{Token: lease.Token(), Owner: lease.Owner()}
}

// check refuses a malformed claim or resource.
func (c Claim) check(resource string) error {
	switch {
	case resource == "" || len(resource) > MaxResource:
		return fmt.Errorf("fence: resource of %d bytes, not 1 to %d: %w", len(resource), MaxResource, ErrInvalid)
	case c.Token < 1 || c.Token > MaxToken:
		return fmt.Errorf("fence: token %d is not between 1 and 2^53 - 1: %w", c.Token, ErrInvalid)
	case c.Owner == "" || len(c.Owner) > MaxOwner:
		return fmt.Errorf("fence: owner of %d bytes, not 1 to %d: %w", len(c.Owner), MaxOwner, ErrInvalid)
	}
	return nil
}

// StaleError is the refusal of a claim. It matches ErrStale.
type StaleError struct {
	Resource string
	Claim    Claim
	// Greatest is an earlier claim, with a greater token, or an equal token of another owner. A
	// lock with this token as its option WithMinToken grants greater tokens.
	Greatest Claim
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("fence: %q: %v: %d of %s, after %d of %s", e.Resource, ErrStale,
		e.Claim.Token, e.Claim.Owner, e.Greatest.Token, e.Greatest.Owner)
}

// Unwrap makes the error match ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }
