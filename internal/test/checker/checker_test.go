package checker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/checker"
	"github.com/leasehold-go/leasehold/internal/test/history"
)

// events are records of a history. Times are milliseconds.
type events []history.Record

// life is the TTL of the leases in these histories, in ms.
const life = 1000

func note(at int64, attempt, what string, r history.Record) events {
	r.At, r.Since = at*1e6, r.Since*1e6
	r.What, r.Attempt = what, attempt
	if r.Proc == "" && attempt != "" {
		r.Proc = attempt[:1]
	}
	return events{r}
}

func asks(at int64, who string, r history.Record) events {
	r.TTL, r.Key = life*1e6, "k"
	r.Wait *= 1e6
	if r.Mode == "" {
		r.Mode = history.Exclusive
	}
	return note(at, who, history.Ask, r)
}

func ask(at int64, who string) events { return asks(at, who, history.Record{}) }

// waits is an attempt that waits for up to the given time.
func waits(who string, at, wait int64) events { return asks(at, who, history.Record{Wait: wait}) }

func queued(at int64, who string, position int) events {
	return note(at, who, history.Queued, history.Record{Position: position})
}

func got(at int64, who string, token int64) events {
	return note(at, who, history.Got, history.Record{Token: token, Live: true})
}

func live(at int64, who string) events { return note(at, who, history.Live, history.Record{}) }

func released(from, to int64, who, outcome string) events {
	return append(note(from, who, history.Release, history.Record{}), note(to, who, history.Released, history.Record{Outcome: outcome})...)
}

// holds is a lease that is not released.
func holds(who string, at, granted, token int64) events {
	return append(ask(at, who), got(granted, who, token)...)
}

// lease is one that is asked for, held and released in order.
func lease(who string, at, granted, end, token int64) events {
	return slices.Concat(holds(who, at, granted, token), live(end, who), released(end, end+1, who, history.OK))
}

// shared is a shared lease until 11.
func shared(who string, granted, token int64, weight, limit int, places string) events {
	asked := asks(1, who, history.Record{Mode: history.Shared, Weight: weight, Limit: limit})
	granting := note(granted, who, history.Got, history.Record{Token: token, Places: places, Live: true})
	return slices.Concat(asked, granting, live(10, who), released(11, 12, who, history.OK))
}

func refused(at, end int64, who, holder string) events {
	return append(ask(at, who), note(end, who, history.None, history.Record{Outcome: history.Held, Holder: holder})...)
}

func fault(from, to int64, proc, forgets string) events {
	return note(to, "", history.Fault, history.Record{Since: from, Proc: proc, Forgets: forgets, Note: "a fault"})
}

func write(at int64, who string, accepted, live bool) events {
	return note(at, who, history.Write, history.Record{Since: at - 1, Accepted: accepted, Live: live})
}

func TestJudge_FindsWhatIsBroken(t *testing.T) {
	rules := history.Rules{Tokens: true, Queue: true, Steady: true, Prompt: int64(8 * time.Second)}
	for _, row := range []struct {
		name  string
		wants []string // the rules that are violated
		play  []events
	}{
		{"one after the other", nil, []events{lease("a", 1, 2, 10, 7), lease("b", 5, 12, 20, 8)}},
		{"two at once", []string{checker.Exclusion, checker.Model}, []events{
			lease("a", 1, 2, 10, 7), lease("b", 5, 9, 20, 8),
		}},
		{"one after the other in one moment", nil, []events{lease("a", 1, 9, 20, 8), lease("b", 2, 9, 9, 7)}},
		{"two at once in one moment", []string{checker.Exclusion, checker.Model}, []events{
			lease("a", 2, 9, 20, 7), lease("b", 1, 9, 9, 8),
		}},
		{"two at once around a loss of memory", nil, []events{
			lease("a", 1, 2, 10, 7), fault(5, 6, "", history.ForgetsSome), lease("b", 6, 9, 20, 8),
		}},
		{"two at once, long after a loss of memory", []string{checker.Exclusion, checker.Model}, []events{
			fault(1, 2, "", history.ForgetsAll), lease("a", 11, 12, 20, 7), lease("b", 15, 19, 30, 8),
		}},
		{"two at once for longer than a lease after a loss of memory", []string{checker.Loss}, []events{
			lease("a", 1, 2, 3000, 7), fault(5, 6, "", history.ForgetsSome), lease("b", 6, 9, 2500, 8),
		}},
		{"two at once around a clock that ends leases early", nil, []events{
			lease("a", 1, 2, 10, 7), fault(5, 6, "", history.ForgetsLeases), lease("b", 6, 9, 20, 8),
		}},
		{"two at once around a clock that ends no lease early", []string{checker.Exclusion, checker.Model}, []events{
			lease("a", 1, 2, 10, 7), fault(5, 6, "", ""), lease("b", 6, 9, 20, 8),
		}},
		{"a smaller token after a clock that ends leases early", []string{checker.Model, checker.Tokens}, []events{
			lease("a", 1, 2, 10, 7), ask(12, "b"), fault(13, 14, "", history.ForgetsLeases), got(15, "b", 6),
			released(20, 21, "b", history.OK),
		}},
		{"handed over after a clock was stepped, reported late, and passed on", nil, []events{
			waits("a", 1, 9000), queued(2, "a", 1), fault(5, 6, "", history.ForgetsLeases), fault(3000, 5000, "a", ""),
			got(5000, "a", 7), lease("b", 4500, 4501, 5700, 8), live(5600, "a"), released(5700, 5701, "a", history.Lost),
		}},
		{"handed over after a clock was stepped, and believed in for longer than a window", []string{checker.Loss}, []events{
			waits("a", 1, 9000), queued(2, "a", 1), fault(5, 6, "", history.ForgetsLeases), fault(3000, 5000, "a", ""),
			got(5000, "a", 7), lease("b", 4500, 4501, 6700, 8), live(6600, "a"), released(6700, 6701, "a", history.Lost),
		}},
		{"a lease that outlives a clock that ends leases early", nil, []events{
			holds("a", 1, 2, 7), fault(5, 6, "", history.ForgetsLeases), live(6+life+1, "a"),
			released(6+life+2, 6+life+3, "a", history.OK),
		}},
		{"believed in for longer than the store remembers", []string{checker.Loss}, []events{
			holds("a", 1, 2, 7), fault(5, 6, "", history.ForgetsAll), live(6+life+1, "a"),
		}},
		{"a release that is silent about a loss", []string{checker.Loss}, []events{
			holds("a", 1, 2, 7), fault(5, 6, "", history.ForgetsAll), released(50, 51, "a", history.OK),
		}},
		{"lost without a cause", []string{checker.FalseLoss}, []events{
			holds("a", 1, 2, 7), released(50, 51, "a", history.Lost),
		}},
		{"lost because its process was stopped", nil, []events{
			holds("a", 1, 2, 7), fault(10, 40, "a", ""), released(50, 51, "a", history.Lost),
		}},
		{"lost because another process was stopped", []string{checker.FalseLoss}, []events{
			holds("a", 1, 2, 7), fault(10, 40, "b", ""), released(50, 51, "a", history.Lost),
		}},
		{"a token twice", []string{checker.Tokens, checker.Model}, []events{
			lease("a", 1, 2, 10, 7), lease("b", 12, 13, 20, 7),
		}},
		{"a smaller token of a server that is being replaced", nil, []events{
			lease("a", 1, 2, 3, 8), fault(4, 15, "", history.ForgetsSome), lease("b", 12, 13, 20, 7),
		}},
		{"a smaller token after a server was replaced", []string{checker.Tokens, checker.Model}, []events{
			lease("a", 1, 2, 3, 8), fault(4, 11, "", history.ForgetsSome), lease("b", 12, 13, 20, 7),
		}},
		{"a token that falls back after a loss of memory", []string{checker.Tokens, checker.Model}, []events{
			lease("a", 1, 2, 3, 7), fault(5, 6, "", history.ForgetsAll), lease("b", 12, 13, 20, 6),
		}},
		{"a stale write that is accepted", []string{checker.Fence, checker.Tokens, checker.Model}, []events{
			lease("a", 1, 2, 10, 8), lease("b", 12, 13, 20, 7), write(14, "b", true, true), write(30, "a", true, false),
		}},
		{"a stale write that is refused", nil, []events{
			lease("a", 1, 2, 10, 7), lease("b", 12, 13, 20, 8), write(14, "b", true, true), write(30, "a", false, false),
		}},
		{"a fresh write that is refused", []string{checker.Fence}, []events{
			lease("a", 1, 2, 10, 7), write(4, "a", false, true),
		}},
		{"overtaken in the queue", []string{checker.Order}, []events{
			lease("a", 1, 2, 30, 7), waits("b", 5, 5000), queued(6, "b", 1), lease("c", 10, 32, 40, 8), got(42, "b", 9),
			released(43, 44, "b", history.OK),
		}},
		{"overtaken by an earlier waiter", nil, []events{
			lease("a", 1, 2, 30, 7), waits("b", 5, 5000), lease("c", 6, 32, 40, 8), queued(7, "b", 2), got(42, "b", 9),
			released(43, 44, "b", history.OK),
		}},
		{"overtaken while it was stopped", nil, []events{
			lease("a", 1, 2, 30, 7), waits("b", 5, 5000), queued(6, "b", 1), fault(20, 36, "b", ""),
			lease("c", 10, 32, 40, 8), got(42, "b", 9), released(43, 44, "b", history.OK),
		}},
		{"a free lock that no waiter gets", []string{checker.Wait}, []events{
			lease("a", 1, 2, 30, 7), waits("b", 5, 20_000), queued(6, "b", 1),
			note(20_006, "b", history.None, history.Record{Outcome: history.Held, Holder: "a"}),
		}},
		{"a call that does not return", []string{checker.Wait}, []events{
			ask(1, "a"), note(90, "", history.Bye, history.Record{Proc: "a"}),
		}},
		{"a call that was cut off by the death of its process", nil, []events{ask(1, "a"), fault(5, 5, "a", "")}},
		{"a call that takes a minute", []string{checker.Wait}, []events{refused(1, 60_000, "a", "")}},
		{"a refusal that names its asker", []string{checker.Refusal}, []events{refused(1, 2, "a", "a")}},
		{"a refusal that names a stranger", []string{checker.Refusal}, []events{refused(1, 2, "a", "b")}},
		{"a refusal that names a former holder", []string{checker.Refusal}, []events{
			lease("a", 1, 2, 3, 7), refused(5, 6, "b", "a"),
		}},
		{"a refusal that names a holder with a successor", []string{checker.Refusal}, []events{
			holds("a", 1, 2, 7), lease("c", 3, 4, 5, 8), refused(6, 7, "b", "a"),
		}},
		{"a refusal that names a party that gave up long ago", []string{checker.Refusal}, []events{
			refused(1, 2, "a", ""), refused(9000, 9001, "b", "a"),
		}},
		{"a refusal that names the holder", nil, []events{lease("a", 1, 2, 10, 7), refused(5, 6, "b", "a")}},
		{"keys that stay", []string{checker.Left}, []events{note(1, "", history.Left, history.Record{Note: "k"})}},
		{"goroutines that stay", []string{checker.Left}, []events{
			note(1, "", history.Bye, history.Record{Proc: "a", Note: "one"}),
		}},
		{"an unexpected error", []string{checker.Shape}, []events{
			ask(1, "a"), note(2, "a", history.None, history.Record{Outcome: history.Failed, Note: "mismatch"}),
		}},
		{"four on three places", []string{checker.Exclusion, checker.Model}, []events{shared("a", 2, 7, 2, 3, ""), shared("b", 3, 8, 2, 3, "")}},
		{"readers next to a writer", []string{checker.Exclusion, checker.Model}, []events{
			lease("a", 1, 2, 10, 7), asks(1, "b", history.Record{Mode: history.Shared}), got(5, "b", 8),
			released(11, 12, "b", history.OK),
		}},
		{"two in one place", []string{checker.Exclusion}, []events{shared("a", 2, 7, 2, 4, "0,3"), shared("b", 3, 8, 2, 4, "1,3")}},
		{"two in places of their own", nil, []events{shared("a", 2, 7, 2, 4, "0,3"), shared("b", 3, 8, 2, 4, "1,2")}},
		{"readers next to readers", nil, []events{shared("a", 2, 7, 0, 0, ""), shared("b", 3, 8, 0, 0, "")}},
		{"an expiry without a witness", nil, []events{
			holds("a", 1, 2, 7), // and its process is killed
			fault(3, 3, "a", ""), lease("b", 5, 1003, 1010, 8),
		}},
		{"a grant that was over before its answer came", nil, []events{
			ask(1, "a"), fault(2, 2500, "a", ""), lease("b", 1500, 1510, 1520, 8),
			note(2501, "a", history.Got, history.Record{Token: 7}), released(2502, 2503, "a", history.Lost),
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := checker.Judge(rules, slices.Concat(row.play...))
			slices.Sort(row.wants)
			if got := v.Rules(); !slices.Equal(got, row.wants) {
				t.Errorf("found %v, want %v\n%v", got, row.wants, v)
			}
		})
	}
}
