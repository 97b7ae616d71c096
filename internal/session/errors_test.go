package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
)

// TestUnknown_IsWhatIsNotDefinite, once.
func TestUnknown_IsWhatIsNotDefinite(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{driver.ErrUnavailable, driver.ErrUnavailable.Error()}, {driver.ErrInvalid, driver.ErrInvalid.Error()},
		{io.EOF, "outcome unknown: EOF"}, {Unknown(io.EOF), "outcome unknown: EOF"},
		{unknown(driver.ErrUnavailable), "outcome unknown: " + driver.ErrUnavailable.Error()},
	} {
		if got := Unknown(c.err).Error(); got != c.want {
			t.Errorf("%v becomes %q, want %q", c.err, got, c.want)
		}
	}
}

// TestBecause_TellsTheEndOnce.
func TestBecause_TellsTheEndOnce(t *testing.T) {
	stop := errors.New("stop")
	for _, c := range []struct {
		cause, err error
		want       string
	}{
		{stop, io.EOF, "stop: EOF"},
		{stop, fmt.Errorf("asked: %w", stop), "asked: stop"},
		{context.Canceled, errors.New("asked: context canceled"), "context canceled: asked"},
		{context.DeadlineExceeded, errors.New("asked: context deadline exceeded"), "context deadline exceeded: asked"},
		{context.Canceled, errors.New("asked: context deadline exceeded"), "context canceled: asked: context deadline exceeded"},
	} {
		got := Because(c.cause, c.err)
		if got.Error() != c.want || !errors.Is(got, c.cause) || !errors.Is(got, c.err) {
			t.Errorf("%v because of %v is %q, want %q", c.err, c.cause, got, c.want)
		}
	}
	for _, c := range []struct {
		cause error
		want  []error
		says  string
	}{
		{context.Canceled, []error{context.Canceled}, "context canceled"},
		{stop, []error{stop, context.Canceled}, "context canceled: stop"},
		{fmt.Errorf("the server: %w", context.Canceled), []error{context.Canceled}, "the server: context canceled"},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if CauseOf(ctx) != nil {
			t.Errorf("it has ended: %v", CauseOf(ctx))
		}
		cancel(c.cause)
		if got := CauseOf(ctx); got.Error() != c.says {
			t.Errorf("the cause is %q, want %q", got, c.says)
		}
		matches(t, CauseOf(ctx), c.want, nil)
	}
}
