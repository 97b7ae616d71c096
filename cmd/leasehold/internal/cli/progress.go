package cli

import (
	"context"
	"fmt"
	"os"
	"sync"
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

	mu     sync.Mutex
	last   leasehold.WaitEvent // what the line shows
	at     time.Time           // when it was true
	stop   chan struct{}       // nil while no line is drawn
	ticker sync.WaitGroup
}

func newQueueView(say *reporter, client *leasehold.Client, stderr any) *queueView {
	v := &queueView{report: say, client: client}
	f, ok := stderr.(*os.File)
	if ok && !say.json && say.level >= levelNormal && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		v.tty = f
	}
	return v
}

// holderInterval is the time between two looks at the holder while a terminal shows it.
const holderInterval = 5 * time.Second

// event is called by the waiting goroutine, see [leasehold.ObserveWait].
func (v *queueView) event(ctx context.Context, e leasehold.WaitEvent) {
	moved := v.shown && e.Position != v.place
	if v.shown && !moved && (v.tty == nil || time.Since(v.looked) < holderInterval) {
		return
	}
	if v.shown {
		e.Holder = v.holder(ctx, e)
	}
	v.looked, v.place = time.Now(), e.Position
	switch {
	case v.tty != nil:
		v.draw(e)
	case !v.shown || v.report.json || v.report.level >= levelVerbose:
		v.line(e)
	}
	v.shown = true
}

// holder asks for the current holder after the position has changed. It returns no holder
// if the store does not answer.
func (v *queueView) holder(ctx context.Context, e leasehold.WaitEvent) driver.Holder {
	ctx, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
	defer cancel()
	s, err := v.client.Inspect(ctx, e.Key)
	if err != nil || len(s.Holders) == 0 {
		return driver.Holder{}
	}
	return s.Holders[0]
}

func (v *queueView) line(e leasehold.WaitEvent) {
	ev := event{Event: "waiting", Key: e.Key, Position: e.Position, Waited: ms(e.Waited)}
	if e.Holder.ID != "" || e.Holder.Foreign {
		h := wire.HolderOf(e.Holder)
		ev.Holder = &h
	}
	v.report.tellLater(levelNormal, ev, "waiting for %q: %s", e.Key, situation(e))
}

// situation describes the holder and the position in the queue.
func situation(e leasehold.WaitEvent) string {
	text := "queued"
	if h := e.Holder; h.ID != "" || h.Foreign {
		lease := ""
		if !h.Foreign {
			lease = "lease " + h.ID + ", "
		}
		text = fmt.Sprintf("%s (%sends in %s unless renewed)", heldBy(h), lease, span(h.Remaining))
	}
	return text + fmt.Sprintf(", place %d", e.Position)
}

func heldBy(h driver.Holder) string {
	text := "held by " + ownerName(h.Owner, h.Foreign)
	if h.Since.IsZero() {
		return text
	}
	return text + " for " + span(age(h.Since))
}

// draw shows e in a line of the terminal, redrawn every second.
func (v *queueView) draw(e leasehold.WaitEvent) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last, v.at = e, time.Now()
	v.redraw()
	if v.stop != nil {
		return
	}
	v.stop = make(chan struct{})
	v.ticker.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				v.mu.Lock()
				v.redraw()
				v.mu.Unlock()
			case <-v.stop:
				return
			}
		}
	})
}

// redraw draws the line. The caller holds mu.
func (v *queueView) redraw() {
	e := v.last
	waited := (e.Waited + time.Since(v.at)).Truncate(time.Second)
	text := fmt.Sprintf("waiting %s for %q at place %d", span(waited), e.Key, e.Position)
	if h := e.Holder; h.ID != "" || h.Foreign {
		text += ": " + heldBy(h)
	}
	if width, _, err := term.GetSize(int(v.tty.Fd())); err == nil && width > 1 && len([]rune(text)) >= width {
		text = string([]rune(text)[:width-2]) + "…"
	}
	fmt.Fprintf(v.tty, "\r\x1b[K%s", text)
}

// end clears the line before the command writes.
func (v *queueView) end() {
	if v.stop == nil {
		return
	}
	close(v.stop)
	v.ticker.Wait()
	v.stop = nil
	fmt.Fprint(v.tty, "\r\x1b[K")
}
