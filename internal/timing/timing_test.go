package timing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// reply is an error of a type that its user looks for.
type reply string

func (r reply) Error() string { return string(r) }

// TestUncertain_HR_A2_KeepsAllButTheCertainty checks that the rest of an error stays.
func TestUncertain_HR_A2_KeepsAllButTheCertainty(t *testing.T) {
	err := fmt.Errorf("undo: %w", Uncertain(fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, driver.ErrNotReplicated, context.Canceled)))
	if errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNotReplicated) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	var told reply
	if !errors.As(Uncertain(fmt.Errorf("%w: %w", driver.ErrUnavailable, reply("OOM"))), &told) {
		t.Error("the server's answer is lost")
	}
}

func TestIsTimeout(t *testing.T) {
	for err, want := range map[error]bool{
		context.DeadlineExceeded: true, os.ErrDeadlineExceeded: true, driver.ErrUnavailable: false, context.Canceled: false,
	} {
		if got := IsTimeout(fmt.Errorf("ask: %w", err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// A store may be away for the hours of a lease: the undo of a possible grant is then repeated
// hundreds of times.
func TestUndoIn_IsAPauseHoweverOftenItFailed(t *testing.T) {
	for attempt := 1; attempt <= 10_000; attempt++ {
		if d := UndoIn(attempt); d <= 0 || d > 2*time.Second {
			t.Fatalf("after %d attempts the pause is %v", attempt, d)
		}
	}
}
