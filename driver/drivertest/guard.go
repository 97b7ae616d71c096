package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// guardRows test a store that can detect that it has lost its data. They share the
// store's mark, which the first of these rows sets for good, unless each row has a
// store of its own.
var guardRows = []row{
	{"guard/an unmarked store refuses", Guard,
		"a store that lost its data has no tokens; the lock that it would grant may have a holder",
		func(l *lab, p, q *process) {
			unmarked := func() {
				l.Helper()
				if _, ok, err := p.marker().Marked(context.Background()); err != nil {
					l.Fatalf("marked: %v", err)
				} else if ok {
					l.Skip("another row has marked the store: give each row a store of its own, by Config.Wrap, to play this one") //nolint:forbidigo // the mark of a store cannot be removed
				}
			}
			unmarked()
			reply, err := p.try(p.request("a", []option{guard}))
			if !errors.Is(err, driver.ErrAmnesia) {
				unmarked() // still
				l.Fatalf("%v, %v; want driver.ErrAmnesia", reply, err)
			}
			q.acquire("b", driver.Granted) // the store is unchanged
			q.release("b", driver.Released)
		}},
	{"guard/a marked store serves", Guard,
		"while the store has its mark, it has lost no data since the mark was set",
		func(l *lab, p, q *process) {
			p.mark(0)
			if left := q.marked(); left > 0 {
				l.Fatalf("in quarantine for %v", left)
			}
			first := p.acquire("a", driver.Granted, guard)
			l.wantToken(q.acquire("a", driver.Granted, guard), first.Token)
			q.acquire("b", driver.Busy, guard)
			p.renew("a", driver.Granted)
			p.release("a", driver.Released)
			l.greater(q.acquire("b", driver.Granted, guard).Token, first.Token)
		}},
	{"guard/a mark stays as it is", Guard,
		"two processes may set it at once, and the later one must not close a store that serves",
		func(l *lab, p, q *process) {
			p.mark(0)
			q.mark(long)
			if left := p.marked(); left > 0 {
				l.Fatalf("in quarantine for %v", left)
			}
			q.acquire("a", driver.Granted, guard)
		}},
	{"guard/HR_F11 a mark keeps its value", Guard,
		"by its name the programs that share the store see whether they mean the same group of stores",
		func(l *lab, p, q *process) {
			p.mark(0)
			if err := q.marker().Mark(context.Background(), driver.Mark{Name: "other"}, ""); err != nil {
				l.Fatal(err)
			}
			if mark, ok, err := q.marker().Marked(context.Background()); mark.Name != markName || !ok || err != nil {
				l.Fatalf("%+v, %v, %v; want the name %q", mark, ok, err, markName)
			}
			if reserved, err := q.marker().Reserve(context.Background(), "q", long); reserved || err != nil {
				l.Fatalf("reserved although it is marked: %v, %v", reserved, err)
			}
		}},
	{"guard/an ended context", Guard,
		"if the context has ended, the outcome is unknown",
		func(l *lab, p, q *process) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_, _, err := p.marker().Marked(ctx)
			l.unanswered("marked", err)
			_, err = p.marker().Reserve(ctx, "x", time.Second)
			l.unanswered("reserve", err)
			l.unanswered("mark", p.marker().Mark(ctx, driver.Mark{}, ""))
		}},
	{"guard/a closed driver", Guard,
		"a call after Close fails with a clear error",
		func(l *lab, p, q *process) {
			_ = p.d.Close()
			if _, _, err := p.marker().Marked(context.Background()); !errors.Is(err, driver.ErrClosed) {
				l.Errorf("marked: %v, want driver.ErrClosed", err)
			}
			if err := p.marker().Mark(context.Background(), driver.Mark{}, ""); !errors.Is(err, driver.ErrClosed) {
				l.Errorf("mark: %v, want driver.ErrClosed", err)
			}
		}},
}

// markName is the name of the mark that the rows set.
const markName = "5.abc-DEF"

func (p *process) marker() driver.Marker {
	p.Helper()
	return optional[driver.Marker](p, Guard)
}

func (p *process) mark(quarantine time.Duration) {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.marker().Mark(ctx, driver.Mark{Name: markName, Quarantine: quarantine}, ""); err != nil {
		p.Fatalf("mark: %v", err)
	}
}

// marked returns how long the store stays in quarantine. It fails the row if
// there is no mark.
func (p *process) marked() time.Duration {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	mark, ok, err := p.marker().Marked(ctx)
	if err != nil || !ok {
		p.Fatalf("marked: %v, %v", ok, err)
	}
	return mark.Quarantine
}
