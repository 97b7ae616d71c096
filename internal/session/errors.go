package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Errors for the end of a lease or a call. The library exports them.
var (
	ErrUnknown = errors.New("outcome unknown")
	ErrLost    = errors.New("lease lost")
	ErrBroken  = errors.New("lease broken by force")
	ErrNotHeld = errors.New("lease not held")
	ErrMaxHold = errors.New("maximum hold time reached")
	ErrClosed  = errors.New("client closed")
)

// errTwice is returned for a lease that this session already holds.
var errTwice = fmt.Errorf("held by this client: %w", driver.ErrMismatch)

// Unknown marks err as an unknown outcome, unless the request certainly had no effect.
func Unknown(err error) error {
	if timing.Definite(err) || errors.Is(err, ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// earlierUnknown marks err, the error of the last of several tries, as an unknown outcome
// because of an earlier try.
func earlierUnknown(err error) error {
	return fmt.Errorf("%w: %w", ErrUnknown, timing.Uncertain(err))
}

// Broken returns an error that matches ErrBroken and ErrLost.
func Broken(reason string) error {
	if reason == "" {
		return fmt.Errorf("%w: %w", ErrLost, ErrBroken)
	}
	return fmt.Errorf("%w: %w: %s", ErrLost, ErrBroken, reason)
}

// Because puts cause, the reason why the call ended, before err. If err already matches
// cause, it returns err.
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

// CauseOf returns why ctx ended, or nil if it has not. The error matches both ctx.Err
// and the context's cause.
func CauseOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
