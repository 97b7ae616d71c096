package checker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/checker"
	"github.com/leasehold-go/leasehold/internal/test/history"
)

// book is a history that is written by hand. Times are milliseconds.
type book struct{ history.History }

// life is the TTL of the leases in these histories, in ms.
const life = 1000

func newBook() *book {
	b := new(book)
	b.Header.Rules = history.Rules{Tokens: true, Queue: true, Steady: true, Prompt: int64(8 * time.Second)}
	return b
}

func (b *book) add(at int64, attempt, what string, r history.Record) {
	r.At, r.Since = at*1e6, r.Since*1e6
	r.What, r.Attempt = what, attempt
	if r.Proc == "" && attempt != "" {
		r.Proc = attempt[:1]
	}
	b.Records = append(b.Records, r)
}

func (b *book) ask(at int64, who string, r history.Record) {
	r.TTL = life * 1e6
	r.Wait *= 1e6
	if r.Key == "" {
		r.Key = "k"
	}
	if r.Mode == "" {
		r.Mode = history.Exclusive
	}
	b.add(at, who, history.Ask, r)
}

func (b *book) got(at int64, who string, token int64) {
	b.add(at, who, history.Got, history.Record{Token: token, Live: true})
}

func (b *book) live(at int64, who string) { b.add(at, who, history.Live, history.Record{}) }

func (b *book) released(from, to int64, who, outcome string) {
	b.add(from, who, history.Release, history.Record{})
	b.add(to, who, history.Released, history.Record{Outcome: outcome})
}

// lease is one that is asked for, held and released in order.
func (b *book) lease(who string, ask, got, end int64, token int64) {
	b.ask(ask, who, history.Record{})
	b.got(got, who, token)
	b.live(end, who)
	b.released(end, end+1, who, history.OK)
}

func (b *book) refused(ask, end int64, who, holder string) {
	b.ask(ask, who, history.Record{})
	b.add(end, who, history.None, history.Record{Outcome: history.Held, Holder: holder})
}

func (b *book) fault(from, to int64, proc, forgets string) {
	b.add(to, "", history.Fault, history.Record{Since: from, Proc: proc, Forgets: forgets, Note: "a fault"})
}

func (b *book) write(at int64, who string, accepted, live bool) {
	b.add(at, who, history.Write, history.Record{Since: at - 1, Accepted: accepted, Live: live})
}

func TestJudge_FindsWhatIsBroken(t *testing.T) {
	for _, row := range []struct {
		name  string
		wants []string // the rules that are violated
		write func(b *book)
	}{
		{"one after the other", nil, func(b *book) {
			b.lease("a", 1, 2, 10, 7)
			b.lease("b", 5, 12, 20, 8)
		}},
		{"two at once", []string{checker.Exclusion, checker.Model}, func(b *book) {
			b.lease("a", 1, 2, 10, 7)
			b.lease("b", 5, 9, 20, 8)
		}},
		{"one after the other in one moment", nil, func(b *book) {
			b.lease("a", 1, 9, 20, 8)
			b.lease("b", 2, 9, 9, 7)
		}},
		{"two at once in one moment", []string{checker.Exclusion, checker.Model}, func(b *book) {
			b.lease("a", 2, 9, 20, 7)
			b.lease("b", 1, 9, 9, 8)
		}},
		{"two at once around a loss of memory", nil, func(b *book) {
			b.lease("a", 1, 2, 10, 7)
			b.fault(5, 6, "", history.ForgetsSome)
			b.lease("b", 6, 9, 20, 8)
		}},
		{"two at once, long after a loss of memory", []string{checker.Exclusion, checker.Model}, func(b *book) {
			b.fault(1, 2, "", history.ForgetsAll)
			b.lease("a", 11, 12, 20, 7)
			b.lease("b", 15, 19, 30, 8)
		}},
		{"two at once for longer than a lease after a loss of memory", []string{checker.Loss}, func(b *book) {
			b.lease("a", 1, 2, 3000, 7)
			b.fault(5, 6, "", history.ForgetsSome)
			b.lease("b", 6, 9, 2500, 8)
		}},
		{"two at once around a clock that ends leases early", nil, func(b *book) {
			b.lease("a", 1, 2, 10, 7)
			b.fault(5, 6, "", history.ForgetsLeases)
			b.lease("b", 6, 9, 20, 8)
		}},
		{"two at once around a clock that ends no lease early", []string{checker.Exclusion, checker.Model}, func(b *book) {
			b.lease("a", 1, 2, 10, 7)
			b.fault(5, 6, "", "")
			b.lease("b", 6, 9, 20, 8)
		}},
		{"a smaller token after a clock that ends leases early", []string{checker.Model, checker.Tokens}, func(b *book) {
			b.lease("a", 1, 2, 10, 7)
			b.ask(12, "b", history.Record{})
			b.fault(13, 14, "", history.ForgetsLeases)
			b.got(15, "b", 6)
			b.released(20, 21, "b", history.OK)
		}},
		{"handed over after a clock was stepped, reported late, and passed on", nil, func(b *book) {
			b.ask(1, "a", history.Record{Wait: 9000})
			b.add(2, "a", history.Queued, history.Record{Position: 1})
			b.fault(5, 6, "", history.ForgetsLeases)
			b.fault(3000, 5000, "a", "")
			b.got(5000, "a", 7)
			b.lease("b", 4500, 4501, 5700, 8)
			b.live(5600, "a")
			b.released(5700, 5701, "a", history.Lost)
		}},
		{"handed over after a clock was stepped, and believed in for longer than a window", []string{checker.Loss}, func(b *book) {
			b.ask(1, "a", history.Record{Wait: 9000})
			b.add(2, "a", history.Queued, history.Record{Position: 1})
			b.fault(5, 6, "", history.ForgetsLeases)
			b.fault(3000, 5000, "a", "")
			b.got(5000, "a", 7)
			b.lease("b", 4500, 4501, 6700, 8)
			b.live(6600, "a")
			b.released(6700, 6701, "a", history.Lost)
		}},
		{"a lease that outlives a clock that ends leases early", nil, func(b *book) {
			b.ask(1, "a", history.Record{})
			b.got(2, "a", 7)
			b.fault(5, 6, "", history.ForgetsLeases)
			b.live(6+life+1, "a")
			b.released(6+life+2, 6+life+3, "a", history.OK)
		}},
		{"believed in for longer than the store remembers", []string{checker.Loss}, func(b *book) {
			b.ask(1, "a", history.Record{})
			b.got(2, "a", 7)
			b.fault(5, 6, "", history.ForgetsAll)
			b.live(6+life+1, "a")
		}},
		{"a release that is silent about a loss", []string{checker.Loss}, func(b *book) {
			b.ask(1, "a", history.Record{})
			b.got(2, "a", 7)
			b.fault(5, 6, "", history.ForgetsAll)
			b.released(50, 51, "a", history.OK)
		}},
		{"lost without a cause", []string{checker.FalseLoss}, func(b *book) {
			b.ask(1, "a", history.Record{})
			b.got(2, "a", 7)
			b.released(50, 51, "a", history.Lost)
		}},
		{"lost because its process was stopped", nil, func(b *book) {
			b.ask(1, "a", history.Record{})
			b.got(2, "a", 7)
			b.fault(10, 40, "a", "")
			b.released(50, 51, "a", history.Lost)
		}},
		{"lost because another process was stopped", []string{checker.FalseLoss}, func(b *book) {
			b.ask(1, "a", history.Record{})
			b.got(2, "a", 7)
			b.fault(10, 40, "b", "")
			b.released(50, 51, "a", history.Lost)
		}},
		{"a token twice", []string{checker.Tokens, checker.Model}, func(b *book) {
			b.lease("a", 1, 2, 10, 7)
			b.lease("b", 12, 13, 20, 7)
		}},
		{"a smaller token of a server that is being replaced", nil, func(b *book) {
			b.lease("a", 1, 2, 3, 8)
			b.fault(4, 15, "", history.ForgetsSome)
			b.lease("b", 12, 13, 20, 7)
		}},
		{"a smaller token after a server was replaced", []string{checker.Tokens, checker.Model}, func(b *book) {
			b.lease("a", 1, 2, 3, 8)
			b.fault(4, 11, "", history.ForgetsSome)
			b.lease("b", 12, 13, 20, 7)
		}},
		{"a token that falls back after a loss of memory", []string{checker.Tokens, checker.Model}, func(b *book) {
			b.lease("a", 1, 2, 3, 7)
			b.fault(5, 6, "", history.ForgetsAll)
			b.lease("b", 12, 13, 20, 6)
		}},
		{"a stale write that is accepted", []string{checker.Fence, checker.Tokens, checker.Model}, func(b *book) {
			b.lease("a", 1, 2, 10, 8)
			b.lease("b", 12, 13, 20, 7)
			b.write(14, "b", true, true)
			b.write(30, "a", true, false)
		}},
		{"a stale write that is refused", nil, func(b *book) {
			b.lease("a", 1, 2, 10, 7)
			b.lease("b", 12, 13, 20, 8)
			b.write(14, "b", true, true)
			b.write(30, "a", false, false)
		}},
		{"a fresh write that is refused", []string{checker.Fence}, func(b *book) {
			b.lease("a", 1, 2, 10, 7)
			b.write(4, "a", false, true)
		}},
		{"overtaken in the queue", []string{checker.Order}, func(b *book) {
			b.lease("a", 1, 2, 30, 7)
			b.ask(5, "b", history.Record{Wait: 5000})
			b.add(6, "b", history.Queued, history.Record{Position: 1})
			b.lease("c", 10, 32, 40, 8)
			b.got(42, "b", 9)
			b.released(43, 44, "b", history.OK)
		}},
		{"overtaken by an earlier waiter", nil, func(b *book) {
			b.lease("a", 1, 2, 30, 7)
			b.ask(5, "b", history.Record{Wait: 5000})
			b.lease("c", 6, 32, 40, 8)
			b.add(7, "b", history.Queued, history.Record{Position: 2})
			b.got(42, "b", 9)
			b.released(43, 44, "b", history.OK)
		}},
		{"overtaken while it was stopped", nil, func(b *book) {
			b.lease("a", 1, 2, 30, 7)
			b.ask(5, "b", history.Record{Wait: 5000})
			b.add(6, "b", history.Queued, history.Record{Position: 1})
			b.fault(20, 36, "b", "")
			b.lease("c", 10, 32, 40, 8)
			b.got(42, "b", 9)
			b.released(43, 44, "b", history.OK)
		}},
		{"a free lock that no waiter gets", []string{checker.Wait}, func(b *book) {
			b.lease("a", 1, 2, 30, 7)
			b.ask(5, "b", history.Record{Wait: 20_000})
			b.add(6, "b", history.Queued, history.Record{Position: 1})
			b.add(20_006, "b", history.None, history.Record{Outcome: history.Held, Holder: "a"})
		}},
		{"a call that does not return", []string{checker.Wait}, func(b *book) {
			b.ask(1, "a", history.Record{})
			b.add(90, "", history.Bye, history.Record{Proc: "a"})
		}},
		{"a call that was cut off by the death of its process", nil, func(b *book) {
			b.ask(1, "a", history.Record{})
			b.fault(5, 5, "a", "")
		}},
		{"a call that takes a minute", []string{checker.Wait}, func(b *book) {
			b.refused(1, 60_000, "a", "")
		}},
		{"a refusal that names its asker", []string{checker.Refusal}, func(b *book) { b.refused(1, 2, "a", "a") }},
		{"a refusal that names a stranger", []string{checker.Refusal}, func(b *book) { b.refused(1, 2, "a", "b") }},
		{"a refusal that names a former holder", []string{checker.Refusal}, func(b *book) {
			b.lease("a", 1, 2, 3, 7)
			b.refused(5, 6, "b", "a")
		}},
		{"a refusal that names a holder with a successor", []string{checker.Refusal}, func(b *book) {
			b.ask(1, "a", history.Record{})
			b.got(2, "a", 7)
			b.lease("c", 3, 4, 5, 8)
			b.refused(6, 7, "b", "a")
		}},
		{"a refusal that names a party that gave up long ago", []string{checker.Refusal}, func(b *book) {
			b.refused(1, 2, "a", "")
			b.refused(9000, 9001, "b", "a")
		}},
		{"a refusal that names the holder", nil, func(b *book) {
			b.lease("a", 1, 2, 10, 7)
			b.refused(5, 6, "b", "a")
		}},
		{"keys that stay", []string{checker.Left}, func(b *book) { b.add(1, "", history.Left, history.Record{Note: "k"}) }},
		{"goroutines that stay", []string{checker.Left}, func(b *book) { b.add(1, "", history.Bye, history.Record{Proc: "a", Note: "one"}) }},
		{"an unexpected error", []string{checker.Shape}, func(b *book) {
			b.ask(1, "a", history.Record{})
			b.add(2, "a", history.None, history.Record{Outcome: history.Failed, Note: "mismatch"})
		}},
		{"four on three places", []string{checker.Exclusion, checker.Model}, func(b *book) {
			for i, who := range []string{"a", "b"} {
				b.ask(1, who, history.Record{Mode: history.Shared, Weight: 2, Limit: 3})
				b.got(int64(2+i), who, int64(7+i))
				b.live(10, who)
				b.released(11, 12, who, history.OK)
			}
		}},
		{"readers next to a writer", []string{checker.Exclusion, checker.Model}, func(b *book) {
			b.lease("a", 1, 2, 10, 7)
			b.ask(1, "b", history.Record{Mode: history.Shared})
			b.got(5, "b", 8)
			b.released(11, 12, "b", history.OK)
		}},
		{"readers next to readers", nil, func(b *book) {
			for i, who := range []string{"a", "b"} {
				b.ask(1, who, history.Record{Mode: history.Shared})
				b.got(int64(2+i), who, int64(7+i))
				b.live(10, who)
				b.released(11, 12, who, history.OK)
			}
		}},
		{"an expiry without a witness", nil, func(b *book) {
			b.ask(1, "a", history.Record{})
			b.got(2, "a", 7) // and its process is killed
			b.fault(3, 3, "a", "")
			b.lease("b", 5, 1003, 1010, 8)
		}},
		{"a grant that was over before its answer came", nil, func(b *book) {
			b.ask(1, "a", history.Record{})
			b.fault(2, 2500, "a", "")
			b.lease("b", 1500, 1510, 1520, 8)
			b.add(2501, "a", history.Got, history.Record{Token: 7})
			b.released(2502, 2503, "a", history.Lost)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBook()
			row.write(b)
			v := checker.Judge(&b.History)
			slices.Sort(row.wants)
			if got := v.Rules(); !slices.Equal(got, row.wants) {
				t.Errorf("found %v, want %v\n%v", got, row.wants, v)
			}
		})
	}
}
