package timing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

const ms = time.Millisecond

// TestDurations_AreTheOnesThatAreMeant holds every pause and bound to its value, at the
// places where another rule begins to count.
func TestDurations_AreTheOnesThatAreMeant(t *testing.T) {
	for _, c := range []struct {
		what      string
		got, want time.Duration
	}{
		{"the first try", FirstTry, 5 * time.Second},
		{"a try without a wait", TryOutage, 10 * time.Second},
		{"an outage", OutageAfter, time.Second},
		{"the refusal of an id", ForbidFor, time.Minute},
		{"the window of a long lease", Window(time.Minute), time.Second},
		{"the window of a short lease", Window(300 * ms), 300 * ms},
		{"the window of a very short lease", Window(50 * ms), 100 * ms},
		{"the life of a ticket", TicketLife("somewhere"), 15 * time.Second},
		{"the life of a ticket without hints", TicketLife(""), 3 * time.Second},
		{"the life of a lease", Life(10*time.Second, Drift), 9898 * ms},
		{"the first try of plenty", Try(1, time.Minute), 5 * time.Second},
		{"the second try of plenty", Try(2, time.Minute), 10 * time.Second},
		{"the third try of plenty", Try(3, time.Minute), 15 * time.Second},
		{"the hundredth try of hours", Try(100, 1000*time.Hour), 15 * time.Second},
		{"a try of some time", Try(1, 6*time.Second), 3 * time.Second},
		{"a try of little time", Try(1, 1500*ms), time.Second},
		{"a try of less time", Try(1, 400*ms), 400 * ms},
		{"a try of no time", Try(1, -time.Second), ms},
		{"a try of a renewal", RenewalTry(3 * time.Second), 1500 * ms},
		{"a try of a renewal of hours", RenewalTry(3 * time.Hour), 15 * time.Second},
		{"a try of a renewal in no time", RenewalTry(0), ms},
		{"a try of a release", ReleaseTry(3 * time.Second), time.Second},
		{"a try of a release of hours", ReleaseTry(3 * time.Hour), 15 * time.Second},
		{"a try of a release in little time", ReleaseTry(150 * ms), 100 * ms},
		{"a try of a release in less time", ReleaseTry(60 * ms), 60 * ms},
		{"the pause before any try", BackOff(0), 10 * ms},
		{"the pause after a try", BackOff(1), 20 * ms},
		{"the pause after five tries", BackOff(5), 320 * ms},
		{"the longest pause", BackOff(6), 500 * ms},
		{"the longest pause after many tries", BackOff(100), 500 * ms},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestRenewIn_IsShortAtFirstAndLeavesTimeForMore(t *testing.T) {
	const ttl, left = 2 * time.Minute, time.Minute
	for _, c := range []struct {
		ttl, left        time.Duration
		n                int
		refused, counted bool
		want             time.Duration
	}{
		{ttl, left, 1, false, false, 100 * ms},
		{ttl, left, 2, false, false, 200 * ms},
		{ttl, left, 5, false, false, 1600 * ms},
		{ttl, left, 5, true, false, time.Second},
		{ttl, left, 8, false, false, 10 * time.Second},
		{ttl, left, 1, false, true, 10 * time.Second},
		{ttl, left, 5, true, true, 10 * time.Second},
		{ttl, 20 * time.Second, 8, false, false, 5 * time.Second},
		{ttl, 0, 1, false, false, ms},
		{1 << 60, 1 << 60, 21, false, false, 100 * ms << 20},
		{1 << 60, 1 << 60, 22, false, false, 100 * ms << 20},
	} {
		if got := RenewIn(c.ttl, c.left, c.n, c.refused, c.counted); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestSpread_IsATenthDownwards looks at every pause that is spread.
func TestSpread_IsATenthDownwards(t *testing.T) {
	undo := func(attempt int) func() time.Duration {
		return func() time.Duration { return UndoIn(attempt) }
	}
	ask := func(told, address string, first bool, next time.Duration) func() time.Duration {
		return func() time.Duration { return AskIn(told, address, first, next) }
	}
	retry := func(told string, failures int) func() time.Duration {
		return func() time.Duration { return RetryIn(told, failures) }
	}
	for _, c := range []struct {
		what  string
		pause func() time.Duration
		want  time.Duration
	}{
		{"itself", func() time.Duration { return Spread(time.Minute) }, time.Minute},
		{"an undoing", undo(1), 20 * ms},
		{"the sixth undoing", undo(6), 500 * ms},
		{"the seventh undoing", undo(7), time.Second},
		{"the eighth undoing", undo(8), 2 * time.Second},
		{"the hundredth undoing", undo(100), 2 * time.Second},
		{"the ten-thousandth undoing", undo(10_000), 2 * time.Second},
		{"a ticket", ask("here", "here", false, 0), 5 * time.Second},
		{"a ticket without hints", ask("", "", false, 0), 500 * ms},
		{"the first ticket of a process", ask("here", "here", true, 0), time.Second},
		{"the first ticket without hints", ask("", "", true, 0), 500 * ms},
		{"the first question again", retry("here", 0), 500 * ms},
		{"a question after one failure", retry("here", 1), 500 * ms},
		{"a question after two failures", retry("here", 2), time.Second},
		{"a question after three failures", retry("here", 3), 2 * time.Second},
		{"a question after four failures", retry("here", 4), 2500 * ms},
		{"a question after many failures", retry("here", 100), 2500 * ms},
		{"a question after many failures without hints", retry("", 100), 500 * ms},
	} {
		least, most := c.want, time.Duration(0)
		for range 2000 {
			d := c.pause()
			least, most = min(least, d), max(most, d)
		}
		if most > c.want || most < c.want-c.want/200 || least <= c.want-c.want/10-ms || least > c.want-c.want*19/200 {
			t.Errorf("%s: from %v to %v, want a tenth below %v", c.what, least, most, c.want)
		}
	}
}

func TestAskIn_IsSoonWhereSomethingEndsOrTheAddressIsNew(t *testing.T) {
	for _, c := range []struct {
		told, address string
		next, want    time.Duration
	}{
		{"here", "here", 10 * ms, 11 * ms},
		{"here", "here", 1, ms + 1},
		{"here", "there", 0, 0},
		{"here", "there", 10 * ms, 0},
	} {
		if got := AskIn(c.told, c.address, false, c.next); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestErrors_ReportTheirConsequences: whether a retry may help, and whether the request
// certainly had no effect.
func TestErrors_ReportTheirConsequences(t *testing.T) {
	for _, c := range []struct {
		err                                 error
		final, permanent, definite, refused bool
	}{
		{driver.ErrInvalid, true, true, true, true},
		{driver.ErrMismatch, true, true, true, false},
		{errors.ErrUnsupported, true, true, true, true},
		{driver.ErrClosed, true, true, true, false},
		{fmt.Errorf("%w: %w", driver.ErrInvalid, driver.ErrMismatch), true, true, true, false},
		{fmt.Errorf("%w: %w", errors.ErrUnsupported, driver.ErrClosed), true, true, true, false},
		{driver.ErrPermanent, false, true, true, false},
		{fmt.Errorf("%w: %w", driver.ErrNoQuorum, driver.ErrPermanent), false, false, true, false},
		{driver.ErrUnavailable, false, false, true, false},
		{context.DeadlineExceeded, false, false, false, false},
	} {
		err := fmt.Errorf("ask: %w", c.err)
		if Final(err) != c.final || Permanent(err) != c.permanent || Definite(err) != c.definite || Refused(err) != c.refused {
			t.Errorf("%v: %v, %v, %v, %v, want %v, %v, %v, %v", err, Final(err), Permanent(err), Definite(err), Refused(err), c.final, c.permanent, c.definite, c.refused)
		}
		if read := OfRead(err); !errors.Is(read, c.err) || c.definite != (read.Error() == err.Error()) || !Definite(read) {
			t.Errorf("of a read it is %v", read)
		}
	}
	if OfRead(nil) != nil {
		t.Error("a read that was answered is an error")
	}
}

func TestSleep_EndsWithTheContext(t *testing.T) {
	for _, row := range []struct {
		limit, took time.Duration
		want        bool
	}{
		{time.Hour, time.Minute, true}, {time.Second, time.Second, false}, {0, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), row.limit)
			defer cancel()
			began := time.Now()
			if got := Sleep(ctx, time.Minute); got != row.want || time.Since(began) != row.took {
				t.Errorf("%v after %v, want %v after %v", got, time.Since(began), row.want, row.took)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // select may choose the timer
		if Sleep(ended, 0) {
			t.Fatal("a context that has ended does not count")
		}
	}
}

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
