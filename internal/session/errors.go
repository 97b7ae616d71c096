package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Errors that tell how a lease or a call ended. The library shows them to its
// users.
var (
	ErrUnknown = errors.New("outcome unknown")
	ErrLost    = errors.New("lease lost")
	ErrBroken  = errors.New("lease broken by force")
	ErrNotHeld = errors.New("lease not held")
	ErrMaxHold = errors.New("maximum hold time reached")
	ErrClosed  = errors.New("client closed")
)

// errTwice is a lease that is held already.
var errTwice = fmt.Errorf("held by this client: %w", driver.ErrMismatch)

// Unknown marks err as an outcome that cannot be known, unless the store says
// that nothing was done.
func Unknown(err error) error {
	if timing.Definite(err) || errors.Is(err, ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// unknown marks err, the error of the last of several tries, as an outcome that
// cannot be known because of a try before it.
func unknown(err error) error {
	return fmt.Errorf("%w: %w", ErrUnknown, timing.Uncertain(err))
}

// Broken matches ErrBroken and ErrLost.
func Broken(reason string) error {
	if reason == "" {
		return fmt.Errorf("%w: %w", ErrLost, ErrBroken)
	}
	return fmt.Errorf("%w: %w: %s", ErrLost, ErrBroken, reason)
}

// Because puts before err why the call ended: the end of a context, which err may tell
// as well, but is told once.
func Because(cause, err error) error {
	if errors.Is(err, cause) {
		return err
	}
	return &because{cause, err}
}

type because struct{ cause, err error }

func (b *because) Error() string {
	why, what := b.cause.Error(), b.err.Error()
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(b.cause, end) {
			what = strings.TrimSuffix(what, ": "+end.Error())
		}
	}
	return why + ": " + what
}

// Unwrap makes the error match both.
func (b *because) Unwrap() []error { return []error{b.cause, b.err} }

// CauseOf is why ctx ended: an error that matches both its Err and its cause; nil
// if it has not.
func CauseOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
