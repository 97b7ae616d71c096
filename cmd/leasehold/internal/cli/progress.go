package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// queueView shows the progress of a wait: on a terminal as one line that is redrawn, with
// --json as an event per change, and otherwise as one line when the wait begins.
type queueView struct {
	report *reporter
	client *leasehold.Client
	tty    *os.File // nil if there is no terminal to write to
	shown  bool
	looked time.Time
	place  int

	states  chan wait     // the line shows the last; nil before the first
	cleared chan struct{} // closed when the line is erased
}

func newQueueView(say *reporter, client *leasehold.Client, stderr any) *queueView {
	v := &queueView{report: say, client: client}
	f, ok := stderr.(*os.File)
	if ok && !say.json && say.level >= levelNormal && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		v.tty = f
	}
	return v
}

// wait is the state of a wait.
type wait struct {
	leasehold.WaitEvent
	closed time.Duration // for how much longer the lock stays closed without a holder
	at     time.Time
}

// holderInterval is the time between two requests for the holder while a terminal shows it.
const holderInterval = 5 * time.Second

// event is called by the waiting goroutine, see [leasehold.ObserveWait].
func (v *queueView) event(ctx context.Context, e leasehold.WaitEvent) {
	moved := v.shown && e.Position != v.place
	if v.shown && !moved && (v.tty == nil || time.Since(v.looked) < holderInterval) {
		return
	}
	w := wait{WaitEvent: e, at: time.Now()}
	if v.shown || e.Holder.ID == "" && !e.Holder.Foreign {
		w.Holder, w.closed = v.look(ctx, e.Key)
	}
	v.looked, v.place = time.Now(), e.Position
	switch {
	case v.tty != nil:
		v.draw(w)
	case !v.shown || v.report.json || v.report.level >= levelVerbose:
		v.line(w)
	}
	v.shown = true
}

// look asks the store for the current holder, or for how much longer the lock is closed if
// there is no holder. It returns zero values if the store does not answer.
func (v *queueView) look(ctx context.Context, key string) (driver.Holder, time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
	defer cancel()
	s, err := v.client.Inspect(ctx, key)
	if err != nil || len(s.Holders) == 0 {
		return driver.Holder{}, s.Closed
	}
	return s.Holders[0], 0
}

func (v *queueView) line(e wait) {
	ev := event{Event: "waiting", Key: e.Key, Position: e.Position, Waited: ms(e.Waited)}
	if e.Holder.ID != "" || e.Holder.Foreign {
		h := wire.HolderOf(e.Holder)
		ev.Holder = &h
	}
	v.report.say(v.report.lines.later, levelNormal, ev, "waiting for %q: %s", e.Key, situation(e))
}

// situation describes the holder and the position in the queue.
func situation(e wait) string {
	text := "queued"
	if e.closed > 0 {
		text = "closed after its last holder for another " + span(e.closed)
	}
	if h := e.Holder; h.ID != "" || h.Foreign {
		lease := ""
		if !h.Foreign {
			lease = "lease " + h.ID + ", "
		}
		text = fmt.Sprintf("%s (%sends in %s unless renewed)", heldBy(h), lease, span(h.Remaining))
	}
	return text + fmt.Sprintf(", place %d", e.Position)
}

// draw shows e in a line of the terminal, redrawn every second. A goroutine writes the line: a
// terminal that is stopped, or whose connection hangs, blocks writes but must not block the wait.
func (v *queueView) draw(e wait) {
	if v.states == nil {
		v.states, v.cleared = make(chan wait, 1), make(chan struct{})
		go v.keepDrawn(e)
		return
	}
	select {
	case <-v.states: // not drawn yet
	default:
	}
	v.states <- e
}

// keepDrawn draws the line, first for last, until the wait is over, and clears it.
func (v *queueView) keepDrawn(last wait) {
	defer close(v.cleared)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ok := true; ok; {
		v.redraw(last)
		select {
		case last, ok = <-v.states:
		case <-tick.C:
		}
	}
	fmt.Fprint(v.tty, "\r\x1b[K")
}

func (v *queueView) redraw(e wait) {
	waited := (e.Waited + time.Since(e.at)).Truncate(time.Second)
	text := fmt.Sprintf("waiting %s for %q at place %d", span(waited), e.Key, e.Position)
	if h := e.Holder; h.ID != "" || h.Foreign {
		text += ": " + heldBy(h)
	} else if left := e.closed - time.Since(e.at); left > 0 {
		text += ": closed after its last holder for another " + span(left)
	}
	if width, _, err := term.GetSize(int(v.tty.Fd())); err == nil && width > 1 && len([]rune(text)) >= width {
		text = string([]rune(text)[:width-2]) + "…"
	}
	fmt.Fprintf(v.tty, "\r\x1b[K%s", text)
}

// end clears the line before the command writes. It waits for at most a second if the terminal
// blocks writes, because the lock may already be held.
func (v *queueView) end() {
	if v.states == nil {
		return
	}
	close(v.states)
	select {
	case <-v.cleared:
	case <-time.After(time.Second):
	}
}
