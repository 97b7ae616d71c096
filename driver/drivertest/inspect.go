package drivertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// inspectRows test inspection.
var inspectRows = []row{
	{"inspect/a free room", Inspect,
		"inspecting a free lock is common; it is not an error, and must not create a room",
		func(l *lab, p, q *process) {
			for range 2 {
				if got := p.inspect(l.key); len(got.Holders)+len(got.Waiters) != 0 || got.Closed != 0 || got.Key != l.key {
					l.Fatalf("%+v", got)
				}
			}
			p.acquire("a", driver.Granted)
		}},
	{"inspect/HR_D7 a glance", Inspect | Queue,
		"a caller that needs only the holders must not pay for the waiters, and gets the same holders as by Inspect",
		func(l *lab, p, q *process) {
			glance := func() driver.Snapshot {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				snap, err := driver.Glance(ctx, p.d, l.key)
				if err != nil {
					l.Fatal(err)
				}
				return snap
			}
			if got := glance(); len(got.Holders) != 0 || got.Key != l.key {
				l.Fatalf("a free room: %+v", got)
			}
			p.acquire("a", driver.Granted, labels(map[string]string{"n": "1"}))
			for _, name := range []string{"b", "c"} {
				p.acquire(name, driver.Queued, waits(long))
			}
			got, want := glance(), p.inspect(l.key)
			if len(want.Waiters) != 2 || len(got.Waiters) != 0 {
				l.Fatalf("%d waiters, at a glance %d", len(want.Waiters), len(got.Waiters))
			}
			if len(got.Holders) != 1 || got.Holders[0].ID != l.id("a") || got.Holders[0].Labels["n"] != "1" || got.Token != want.Token {
				l.Fatalf("at a glance %+v, want %+v", got, want)
			}
			p.release("a", driver.Released)
			p.acquire("b", driver.Granted, waits(long))
			if got = glance(); len(got.Holders) != 1 || got.Holders[0].ID != l.id("b") {
				l.Fatalf("at a glance %+v, want b inside", got)
			}
		}},
	{"inspect/the holder", Inspect,
		"operators need the owner and the time until the lease expires",
		func(l *lab, p, q *process) {
			since := time.Now()
			want := map[string]string{"host": "db 1", "quote": `"'\`, "日本": "🔒"}
			reply := p.acquire("a", driver.Granted, owner(`worker "7" é`), labels(want))
			asked := time.Since(since)
			l.cfg.Advance(slack)
			for _, by := range []*process{p, q} {
				got := by.inspect(l.key)
				if len(got.Holders) != 1 {
					l.Fatalf("%d holders, want 1", len(got.Holders))
				}
				h := got.Holders[0]
				if h.ID != l.id("a") || h.Owner != `worker "7" é` || h.Mode != driver.Exclusive || h.Foreign || !h.Confirmed {
					l.Fatalf("holder %+v", h)
				}
				if !maps.Equal(h.Labels, want) {
					l.Fatalf("labels %v, want %v", h.Labels, want)
				}
				if h.Token != reply.Token || l.cfg.Without&Tokens == 0 && got.Token != reply.Token {
					l.Fatalf("tokens %d and %d, want %d", h.Token, got.Token, reply.Token)
				}
				if h.Remaining <= 0 || h.Remaining > long-slack+vague {
					l.Fatalf("remaining %v of %v after %v", h.Remaining, long, slack)
				}
				if d := h.Since.Sub(since); d < -time.Second || d > asked+time.Second {
					l.Fatalf("since %v, want about %v", h.Since, since)
				}
			}
			p.renew("a", driver.Granted)
			p.release("a", driver.Released)
			if got := q.inspect(l.key); len(got.Holders) != 0 {
				l.Fatalf("holders %+v after the release", got.Holders)
			}
		}},
	{"inspect/labels are copies", Inspect | Queue,
		"callers may change the maps that they pass and receive; a store that keeps or returns its own map shows wrong labels, and has a data race",
		func(l *lab, p, q *process) {
			said := map[string]string{"n": "1"}
			p.acquire("a", driver.Granted, labels(said))
			q.acquire("b", driver.Queued, labels(said), waits(long))
			said["n"] = "2"
			for range 2 {
				got := q.inspect(l.key)
				for _, h := range append(got.Holders, q.acquire("b", driver.Queued, labels(map[string]string{"n": "1"}), waits(long)).Holders...) {
					if h.Labels != nil && h.Labels["n"] != "1" { // an answer need not have them
						l.Fatalf("the holder has the labels %v", h.Labels)
					}
					clear(h.Labels)
				}
				for _, w := range got.Waiters {
					if w.Labels["n"] != "1" {
						l.Fatalf("the waiter has the labels %v", w.Labels)
					}
					clear(w.Labels)
				}
			}
		}},
	{"inspect/an expired holder", Inspect,
		"operators should not see, and try to break, a lease that has ended",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, ttl(l.brief))
			l.pass(l.brief)
			if got := p.inspect(l.key); len(got.Holders) != 0 {
				l.Fatalf("holders %+v after the expiry", got.Holders)
			}
		}},
	{"inspect/waiters in order", Inspect | Queue,
		"inspection shows the place of each waiter, and the waiters before it",
		func(l *lab, p, q *process) {
			since := time.Now()
			p.acquire("holder", driver.Granted)
			names := []string{"c", "a", "b"}
			for _, name := range names {
				p.acquire(name, driver.Queued, waits(long), labels(map[string]string{"n": name}))
			}
			got := q.inspect(l.key)
			if len(got.Holders) != 1 || len(got.Waiters) != len(names) {
				l.Fatalf("%d holders and %d waiters, want 1 and %d", len(got.Holders), len(got.Waiters), len(names))
			}
			for i, w := range got.Waiters {
				if w.ID != l.id(names[i]) || w.Position != i+1 || w.Owner != "owner of "+names[i] || w.Labels["n"] != names[i] {
					l.Fatalf("waiter %d: %+v", i+1, w)
				}
				if w.Remaining <= 0 || w.Remaining > long+vague {
					l.Fatalf("waiter %d: %v left of %v", i+1, w.Remaining, long)
				}
				if w.Mode != driver.Exclusive || w.Since.Before(since.Add(-time.Second)) || w.Since.After(time.Now().Add(time.Second)) {
					l.Fatalf("waiter %d: mode %v since %v, want exclusive since about %v", i+1, w.Mode, w.Since, since)
				}
			}
			p.release("holder", driver.Released)
			p.acquire(names[0], driver.Granted, waits(long))
			if got := q.inspect(l.key); len(got.Holders) != 1 || got.Holders[0].ID != l.id(names[0]) || !got.Holders[0].Confirmed {
				l.Fatalf("%s has asked and entered: holders %+v", names[0], got.Holders)
			}
		}},
	{"inspect/places", Inspect | Limits,
		"a semaphore shows the limit, and the places of each holder",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, places(5, 2))
			p.acquire("b", driver.Granted, places(5, 3))
			got := p.inspect(l.key)
			if got.Limit != 5 || len(got.Holders) != 2 {
				l.Fatalf("limit %d with %d holders, want 5 with 2", got.Limit, len(got.Holders))
			}
			weights, numbers := map[string]int{}, map[string]driver.Places{}
			for _, h := range got.Holders {
				if h.Mode != driver.Shared {
					l.Fatalf("holder %+v is not shared", h)
				}
				weights[h.ID], numbers[h.ID] = h.Weight, h.Places
			}
			if weights[l.id("a")] != 2 || weights[l.id("b")] != 3 || numbers[l.id("a")] != "0,1" || numbers[l.id("b")] != "2,3,4" {
				l.Fatalf("weights %v, places %v", weights, numbers)
			}
			if l.cfg.Without&Queue == 0 {
				p.acquire("c", driver.Queued, places(5, 4), waits(long))
				waiters := p.inspect(l.key).Waiters
				if len(waiters) != 1 || waiters[0].Mode != driver.Shared || waiters[0].Weight != 4 {
					l.Fatalf("waiters %+v, want one that is shared and takes 4", waiters)
				}
				p.release("c", driver.Left)
			}
			p.release("a", driver.Released)
			p.release("b", driver.Released)
			if got := p.inspect(l.key); got.Limit != 0 {
				l.Fatalf("limit %d in force in an empty room", got.Limit)
			}
		}},
	{"inspect/a hand-over", Inspect | Queue | Watch,
		"a room that awaits a confirmation is not free, but its new holder does not work yet",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("holder", driver.Granted)
			q.acquire("a", driver.Queued, waits(long))
			p.release("holder", driver.Released)
			if got := p.inspect(l.key); len(got.Holders) != 1 || got.Holders[0].ID != l.id("a") || got.Holders[0].Confirmed || len(got.Waiters) != 0 {
				l.Fatalf("%+v", got)
			}
			q.renew("a", driver.Granted)
			if got := p.inspect(l.key); len(got.Holders) != 1 || !got.Holders[0].Confirmed {
				l.Fatalf("%+v", got)
			}
		}},
	{"inspect/a closed room", Inspect | KeepClosed,
		"a room that refuses all requests although it has no holder must show the reason",
		func(l *lab, p, q *process) {
			start := time.Now()
			p.acquire("a", driver.Granted, ttl(l.brief))
			p.by(start, l.brief).release("a", driver.Released, closes(long))
			if got := p.inspect(l.key); got.Closed <= 0 || got.Closed > long+rounding {
				l.Fatalf("closed for %v, want at most %v", got.Closed, long)
			}
		}},
	{"inspect/a room that is closed by a delay", Inspect | LockDelay,
		"a room that refuses all requests after the loss of its holder must show for how long",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, ttl(l.brief), delay(long))
			l.pass(l.brief)
			if got := p.inspect(l.key); got.Closed <= 0 || got.Closed > long || len(got.Holders) != 0 {
				l.Fatalf("closed for %v, want at most %v; holders %+v", got.Closed, long, got.Holders)
			}
		}},
	{"list/finds locks in use", Inspect,
		"operators list locks by prefix; a prefix is plain text, also if it looks like a pattern",
		func(l *lab, p, q *process) {
			prefix := l.tag + `/a*[b]\`
			want := map[string]bool{}
			for i := range 40 {
				key := fmt.Sprintf("%s%d", prefix, i)
				p.acquire(fmt.Sprintf("held%d", i), driver.Granted, in(key))
				want[key] = true
			}
			p.acquire("other", driver.Granted, in(l.tag+"/aXb0"))
			p.acquire("inner", driver.Granted, in("x"+prefix+"0"))
			p.acquire("free", driver.Granted, in(prefix+"free"))
			p.release("free", driver.Released, at(prefix+"free"))
			if l.cfg.Without&Queue == 0 {
				key := prefix + "waited for"
				p.acquire("before", driver.Granted, in(key))
				p.acquire("waiter", driver.Queued, in(key), waits(long))
				p.release("before", driver.Released, at(key))
				want[key] = true
			}
			for _, by := range []*process{p, q} {
				if got := by.list(prefix); !maps.Equal(got, want) {
					l.Fatalf("listed %d keys, want %d\ngot  %q\nwant %q", len(got), len(want), slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
				}
			}
		}},
	{"list/is empty at the end", Inspect,
		"many keys are used only once; data that stays for each of them fills the store",
		func(l *lab, p, q *process) {
			for i := range 10 {
				key := fmt.Sprintf("%s/%d", l.key, i)
				name := func(s string) string { return fmt.Sprintf("%s%d", s, i) }
				p.acquire(name("released"), driver.Granted, in(key))
				p.release(name("released"), driver.Released, at(key))
				start := time.Now()
				p.acquire(name("expires"), driver.Granted, in(key), ttl(5*l.brief))
				p.by(start, 5*l.brief).acquire(name("try"), driver.Busy, in(key))
				if l.cfg.Without&Queue == 0 {
					p.by(start, 5*l.brief).acquire(name("cancelled"), driver.Queued, in(key), waits(long))
					p.release(name("cancelled"), driver.Left, at(key))
					p.by(start, 5*l.brief).acquire(name("dead"), driver.Queued, in(key), waits(l.brief))
				}
			}
			l.pass(5 * l.brief)
			if got := p.list(l.key); len(got) != 0 {
				l.Fatalf("still listed: %q", slices.Sorted(maps.Keys(got)))
			}
		}},
}

func (p *process) inspect(key string) driver.Snapshot {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	snap, err := optional[driver.Inspector](p, Inspect).Inspect(ctx, key)
	if err != nil {
		p.Fatalf("inspect %q: %v", key, err)
	}
	return snap
}

// list pages through the keys with prefix.
func (p *process) list(prefix string) map[string]bool {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found := map[string]bool{}
	for cursor := ""; ; {
		keys, next, err := optional[driver.Inspector](p, Inspect).List(ctx, prefix, cursor)
		if err != nil {
			p.Fatalf("list %q: %v", prefix, err)
		}
		for _, key := range keys {
			found[key] = true
		}
		if cursor = next; cursor == "" {
			return found
		}
	}
}
