package redisroom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
	"github.com/leasehold-go/leasehold/internal/test/microscope"
)

// plays are worlds that define their own events, and most of them the expected results, because
// the rule does not cover them: the store's mark, locks of other libraries, a lease that is
// prolonged or ended by its one key; and rooms with more parties than an exploration has.
var plays = []world{
	{name: "the mark of the store", play: playMark},
	{name: "guarded requests", play: playGuarded},
	{name: "the counter", play: playCounter},
	{name: "R5 locks and data of others", play: playForeign},
	{name: "a lease by its one key", play: playOneKey},
	{name: "visits in common", play: playVisits},
	{name: "many readers", play: playMany},
	{name: "HR_D1 thousands that are over", play: playThousands},
	{name: "stories", play: playStories},
	{name: "HR_D5 parts that are lost", play: playLost},
}

const lensMS = lensStart / 1000

// on puts the keys in place for a call of the driver.
func (l *lens) on(keys microscope.Keys) *Store {
	l.server.Keys, l.server.Now = keys.Clone(), lensStart
	l.errors, l.heard = nil, nil
	return l.store
}

// left compares the keys with the wanted keys, and checks that no script made a forbidden call.
func (l *lens) left(want microscope.Keys) {
	l.same("forbidden calls", l.errors, []string(nil))
	if got := l.server.Live(); !got.Same(want) {
		l.must(fmt.Errorf("leaves\n%swant\n%s", show(got), show(want)))
	}
}

// after returns the situation after some steps.
func (l *lens) after(steps ...step) *situation { return l.goOn(beginning(), steps...) }

// goOn returns the situation after further steps.
func (l *lens) goOn(from *situation, steps ...step) *situation {
	for _, s := range steps {
		l.at = from
		next, err := l.follow(from, s)
		if err != nil {
			l.must(fmt.Errorf("%s: %w, on\n%s", s.name, err, show(from.keys)))
		}
		from = next
	}
	return from
}

// asks takes a step of the driver on the keys at the start of the world, and expects a state.
func (l *lens) asks(s step, keys microscope.Keys, want driver.State) driver.Reply {
	return l.asksAt(s, keys, lensStart, want)
}

func (l *lens) asksAt(s step, keys microscope.Keys, now int64, want driver.State) driver.Reply {
	got, err := l.take(s, keys, now, lensStart-1)
	l.must(err)
	l.same(s.name, got.State, want)
	return got
}

// equal compares two things by how they are printed.
func equal(what string, got, want any) error {
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		return fmt.Errorf("%s\n got %s\nwant %s", what, g, w)
	}
	return nil
}

// same is equal, and ends the exploration.
func (l *lens) same(what string, got, want any) { l.must(equal(what, got, want)) }

func textUntil(text string, at int64) microscope.Value {
	return microscope.Value{Text: &text, At: at}
}

// kind is which of the driver's errors an error is.
func kind(err error) error {
	for _, k := range []error{driver.ErrAmnesia, driver.ErrMismatch, driver.ErrInvalid} {
		if errors.Is(err, k) {
			return k
		}
	}
	return err
}

// marks are values of the mark's key.
var marks = []microscope.Value{
	{}, textUntil("for me", lensMS+50), textUntil("for you", lensMS+50), textUntil("5 name", 0), textUntil(fmt.Sprint(lensMS), 0),
	textUntil(fmt.Sprint(lensMS+1, " n"), 0), textUntil(fmt.Sprint(lensMS+100, " a name"), 0), textUntil("nonsense", 0), textUntil("forty", 0), {List: true},
}

var markText = regexp.MustCompile(`^(\d+) ?(.*)$`)

func playMark(l *lens) {
	name := lensPrefix + markKey
	for _, v := range marks {
		text := ""
		if v.Text != nil {
			text = *v.Text
		}
		parts := markText.FindStringSubmatch(text)
		foreign := v.List || text != "" && parts == nil && !strings.HasPrefix(text, "for ")
		for _, args := range [][]string{
			{"look"}, {"reserve", "me", "250"}, {"mark", "100", "n", "me"}, {"mark", "100", "n", ""}, {"mark", "0", "n", "x"},
		} {
			keys := microscope.Keys{}
			if v.Type() != "none" {
				keys[name] = v
			}
			l.doing = fmt.Sprintf("%q on %q", args, show(keys))
			reply, err := l.on(keys).mark(context.Background(), args...)
			var want any = int64(0)
			switch {
			case foreign:
				l.same("error", kind(err), driver.ErrMismatch)
				want = nil
			case parts != nil:
				since, _ := strconv.ParseInt(parts[1], 10, 64)
				want = []any{max(0, since-lensMS), parts[2]}
			case args[0] == "reserve" && (text == "" || text == "for "+args[1]):
				keys[name], want = textUntil("for me", lensMS+250), int64(1)
			case args[0] == "mark" && (args[3] == "" || text == "for "+args[3]):
				left, _ := strconv.ParseInt(args[1], 10, 64)
				keys[name], want = textUntil(fmt.Sprint(lensMS+left, " n"), 0), []any{left, "n"}
			}
			l.same("reply", reply, want)
			l.left(keys)
		}
	}
}

// counters are values of the counter's key, and the next token, or 0 if an acquire is refused.
var counters = []struct {
	v    microscope.Value
	next int64
}{
	{microscope.Value{}, lensStart},
	{textUntil("7", lensMS+300), lensStart},
	{textUntil(fmt.Sprint(lensStart-1), lensMS+300), lensStart},
	{textUntil(fmt.Sprint(lensStart+5), lensMS+300), lensStart + 6},
	{textUntil(fmt.Sprint(int64(anyToken)-2), lensMS+300), anyToken - 1},
	{textUntil(fmt.Sprint(int64(anyToken)), lensMS+300), 0},
	{textUntil("9223372036854775807", lensMS+300), 0},
	{textUntil("nonsense", lensMS+300), 0},
	{textUntil("9007199254740993", lensMS+300), 0},
	{textUntil("3.5", lensMS+300), 0},
	{textUntil("0x10", lensMS+300), 0},
	{textUntil(" 7", lensMS+300), 0},
	{textUntil("nan", lensMS+300), 0},
	{textUntil("1e3", lensMS+300), 0},
	{textUntil("-1", lensMS+300), 0},
	{microscope.Value{List: true, At: lensMS + 300}, 0},
}

// playCounter plays every value of the counter, when the rooms get their tokens and 1 µs later.
func playCounter(l *lens) {
	for now := lensStart; now <= lensStart+1; now++ {
		l.playCounterAt(now)
	}
	l.playOwn()
}

func (l *lens) playCounterAt(now int64) {
	c, free := lensPrefix+counterKey, beginning()
	sharer := l.after(ask(reads, parties[0])...)
	queue := l.after(slices.Concat(ask(nil, parties[0]), ask(queues, parties[1:]...))...)
	general := l.after(slices.Concat(ask(nil, parties[0]), ask(allOf(queues, policy(driver.WritersFirst)), parties[1]))...)
	alone, owned := l.after(ask(nil, parties[0])...), l.after(ask(owner("me"), parties[0])...)
	last := lensStart // of the rooms
	for _, counter := range counters {
		counted := func(from *situation) microscope.Keys {
			keys := from.keys.Clone()
			delete(keys, c)
			if counter.v.Type() != "none" {
				keys[c] = counter.v
			}
			return keys
		}
		for _, holder := range []struct {
			from *situation
			step step
		}{{alone, downgrades(parties[0], "")}, {owned, ask(owner("me"), parties[1])[0]}} {
			keys := counted(holder.from)
			l.doing = "on " + show(keys)
			l.asksAt(holder.step, keys, now, driver.Granted)
		}
		for i, play := range []struct {
			from    *situation
			step    step
			release bool
		}{
			{free, ask(nil, parties[0])[0], false}, {free, ask(reads, parties[0])[0], false}, {free, ask(delays, parties[0])[0], false},
			{sharer, ask(reads, parties[1])[0], false}, {sharer, ask(allOf(reads, delays), parties[1])[0], false},
			{queue, releases(parties[0]), true}, {general, releases(parties[0]), true},
		} {
			keys := counted(play.from)
			l.doing = fmt.Sprintf("%s, %d, on %q", play.step.name, i, show(keys))
			got, err := l.take(play.step, keys, now, now-1)
			after := l.server.Live()
			seed := max(counter.next, now)
			want := seed
			if play.from != free {
				want = max(want, last+1)
			}
			l.same("forbidden calls", l.errors, []string(nil))
			switch {
			case counter.next == 0 && !play.release:
				l.same("error", kind(err), driver.ErrMismatch)
				l.same("names the counter", strings.Contains(err.Error(), "counter"), true)
				l.same("left as it is", after[c].Same(counter.v), true)
			case counter.next == 0: // the lock is handed over nevertheless
				l.must(err)
				l.same("state", got.State, driver.Released)
				l.same("the counter", after[c].Same(counter.v), true)
				l.same("token", keptIn(after).own(), want)
			default:
				l.must(err)
				k := keptIn(after)
				l.same("token", k.own(), want)
				if want > seed { // it is the room's own
					l.same("the counter", k.c.Same(counter.v), true)
					break
				}
				l.same("the counter", deref(k.c.Text), fmt.Sprint(want))
				l.same("its end", k.c.At == want/1000+time.Hour.Milliseconds() || want == counter.next && k.c.At == counter.v.At, true)
			}
		}
	}
}

// playOwn raises the token of an uncontended lease. It stays uncontended if the counter can
// follow.
func (l *lens) playOwn() {
	for i, ahead := range []int64{0, 1} {
		l.doing = fmt.Sprintf("raised %d too far", ahead)
		from := l.after(ask(nil, parties[0])...).pass(5, "later")
		old := from.now - time.Hour.Microseconds()
		for _, c := range []struct{ counter, raised, want int64 }{
			{old, from.now - 3, from.now}, {old, from.now + 3, from.now + 3}, {old + 1, from.now - 3, from.now - 3},
		} {
			from.keys[lensPrefix+counterKey] = textUntil(fmt.Sprint(c.counter), lensMS+300)
			_, err := l.take(renews(driver.Ref{ID: idA, Token: c.raised}), from.keys, from.now, from.least)
			l.must(err)
			l.same("the counter", keptIn(l.server.Live()).counter(), c.want)
		}
		from = l.goOn(from, renews(driver.Ref{ID: idA, Token: from.now + time.Second.Microseconds() + ahead}))
		l.same("the holder key", deref(keptIn(from.keys).h.Text) == "*", i > 0)
		from = l.goOn(from, releases(parties[0]))
		l.same("a token of its own", keptIn(from.keys).r.Text != nil, i > 0)

		l.doing = fmt.Sprintf("a minimum %d above the clock", ahead)
		wanted := ask(func(req *driver.Request) { req.MinToken = lensStart - 1 + ahead }, parties[0])
		from = l.after(append(wanted, releases(parties[0]))...)
		l.same("a token of its own", keptIn(from.keys).r.Text != nil, i > 0)
	}
}

// guardedRooms returns rooms in which a guarded request has to look at the mark, and rooms in
// which it need not.
func (l *lens) guardedRooms() (unknown, known []*situation) {
	r, c := string(appendSide(nil, []byte(lensPrefix+lensKey), recordKey)), lensPrefix+counterKey
	counted := func(token, least int64) *situation {
		s := beginning()
		s.keys[c], s.record.Token, s.least = textUntil(fmt.Sprint(token), max(lensMS, token/1000)+3_500_000), token, least
		return s
	}
	ahead := lensStart + time.Hour.Microseconds()
	unknown = []*situation{
		beginning(), counted(lensStart-10, lensStart-10), counted(lensStart-10, lensStart-9), counted(1, lensStart), counted(7, lensStart), counted(ahead, anyToken),
	}
	for _, s := range unknown {
		seen := s.pass(0, "the mark was seen")
		seen.keys[lensPrefix+seenKey] = textUntil("1", lensMS+1)
		known = append(known, seen)
	}
	own := beginning()
	own.keys[r], own.record.Token = textUntil(fmt.Sprint(ahead), ahead/1000+3_500_000), ahead
	contended := l.after(slices.Concat(ask(nil, parties[0]), ask(queues, parties[1]))...)
	return unknown, append(known, own, contended)
}

// playGuarded requests locks whose lease may have been lost with the server's data.
func playGuarded(l *lens) {
	unknown, known := l.guardedRooms()
	guard := func(req *driver.Request) { req.Guard = true }
	once := func(req *driver.Request) { req.SingleUseID = true }
	asks := slices.Concat(ask(guard, parties[2]), ask(allOf(guard, queues), parties[2]), ask(allOf(guard, reads), parties[2]), ask(allOf(guard, once), parties[2]))
	for i, from := range slices.Concat(unknown, known) {
		for _, mark := range marks {
			s := from.pass(0, "guarded")
			if mark.Type() != "none" {
				s.keys[lensPrefix+markKey] = mark
			}
			refusal, says := refused(mark)
			for _, step := range asks {
				l.doing = fmt.Sprintf("%s on\n%s", step.name, show(s.keys))
				if refusal == nil || i >= len(unknown) {
					next := l.goOn(s, step)
					if at := next.keys[lensPrefix+seenKey].At; i < len(unknown) {
						l.same("until when the mark was seen", at, lensMS+time.Minute.Milliseconds())
					}
					continue
				}
				_, err := l.take(step, s.keys, s.now, s.least)
				if !errors.Is(err, refusal) || !strings.Contains(err.Error(), says) {
					l.must(fmt.Errorf("%w, want %w, %q", err, refusal, says))
				}
				l.left(s.keys)
			}
		}
	}
}

// refused returns the error of a guarded request without a known token, and a part of its text.
func refused(mark microscope.Value) (error, string) { //nolint:staticcheck // the error is the outcome
	switch parts := markText.FindStringSubmatch(deref(mark.Text)); {
	case mark.Type() == "none", strings.HasPrefix(deref(mark.Text), "for"):
		return driver.ErrAmnesia, "carries no mark"
	case parts == nil:
		return driver.ErrMismatch, "holds something else"
	default:
		since, _ := strconv.ParseInt(parts[1], 10, 64)
		if since <= lensMS {
			return nil, ""
		}
		return driver.ErrAmnesia, fmt.Sprintf("for %d ms", since-lensMS)
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// playForeign plays locks of other libraries, and a mark of the store without its record.
func playForeign(l *lens) {
	h := lensPrefix + lensKey
	r := string(appendSide(nil, []byte(h), recordKey))
	for _, left := range []int64{1, 300, 2000} {
		for _, known := range []bool{false, true} {
			keys := microscope.Keys{h: textUntil("their lock", lensMS+left)}
			if known {
				keys[r] = textUntil("7", lensMS+3_500_000)
			}
			l.doing = fmt.Sprintf("of %d ms, %v", left, known)
			l.elsewhere(keys, left)
		}
	}
	l.doing = "another library's lock"
	l.lists(microscope.Keys{h: textUntil("their lock", lensMS)}, false, false)
	for _, broken := range []struct {
		v    microscope.Value
		any  bool
		kind error
	}{
		{microscope.Text("their lock"), false, driver.ErrMismatch},
		{microscope.Text(idA + " x 0 1 0 0 300 0 0 A - {} 7"), true, driver.ErrMismatch},
		{microscope.Value{List: true, At: lensMS + 300}, false, driver.ErrMismatch},
		{microscope.Value{Hash: map[string]string{"f": "v"}, At: lensMS + 300}, false, driver.ErrMismatch},
	} {
		keys := microscope.Keys{h: broken.v}
		l.lists(keys, broken.any, broken.any)
		if _, err := l.on(keys).inspect(context.Background(), lensKey); broken.v.List && (err == nil || !strings.Contains(err.Error(), "holds a list")) {
			l.must(fmt.Errorf("inspect: %w", err))
		}
		for _, s := range slices.Concat(ask(nil, parties[1]), ask(queues, parties[1]), ask(reads, parties[1]), each(releases, parties[1]), each(renews, parties[1]), []step{breaks(idB)}) {
			_, err := l.take(s, keys, lensStart, lensStart-1)
			l.errors = slices.DeleteFunc(l.errors, func(s string) bool { return strings.Contains(s, "never ends") })
			l.same(s.name, kind(err), broken.kind)
			l.left(keys)
		}
	}
	l.playClosed()
}

// lists checks whether the lock is listed, without locks of others and with them.
func (l *lens) lists(keys microscope.Keys, mine, any bool) {
	for i, foreign := range []bool{false, true} {
		in, err := l.on(keys).occupied(context.Background(), []string{lensKey}, foreign)
		l.must(err)
		l.same("listed of\n"+show(keys), len(in) > 0, []bool{mine, any}[i])
	}
}

// elsewhere lets parties ask while another library's lock is held.
func (l *lens) elsewhere(keys microscope.Keys, left int64) {
	holder := driver.Holder{ID: "their lock", Mode: driver.Exclusive, Weight: 1, Remaining: millis(left), Confirmed: true, Foreign: true}
	next := millis(min(left, 500))
	busy := driver.Reply{State: driver.Busy, RetryAfter: next, Clock: micros(lensStart), Holders: []driver.Holder{holder}}
	queued := busy
	queued.State, queued.Position = driver.Queued, 1
	token := "" // a counter below the token of the room is seeded
	if keptIn(keys).r.Text != nil {
		token = fmt.Sprint(lensStart)
	}
	picture := func(keys microscope.Keys, waiters int) {
		snap, err := l.on(keys).inspect(context.Background(), lensKey)
		l.must(err)
		l.same("holders", snap.Holders, []driver.Holder{holder})
		l.same("waiters", len(snap.Waiters), waiters)
	}
	l.lists(keys, false, true)
	picture(keys, 0)
	for _, s := range slices.Concat(ask(nil, parties[1]), ask(reads, parties[1]), ask(delays, parties[1]), ask(owner("me"), parties[1])) {
		l.same(s.name, l.asks(s, keys, driver.Busy), busy)
		l.left(keys)
	}
	for _, s := range slices.Concat(each(releases, parties[1]), each(renews, parties[1]), []step{breaks(idB)}) {
		l.asks(s, keys, driver.Gone)
		l.left(keys)
	}
	for _, change := range []func(*driver.Request){queues, allOf(queues, reads)} {
		first, second := ask(change, parties[1])[0], ask(change, parties[0])[0]
		l.same(first.name, l.asks(first, keys, driver.Queued), queued)
		waiting := l.server.Live()
		l.same("the lock", waiting[lensPrefix+lensKey], keys[lensPrefix+lensKey])
		l.lists(waiting, true, true)
		picture(waiting, 1)
		behind := queued
		behind.Position, behind.RetryAfter = 2, 0
		l.same(second.name, l.asks(second, waiting, driver.Queued), behind)
		two := l.server.Live()
		picture(two, 2)
		// It asks again, and once the lock is over.
		l.same("when next", l.asks(renews(parties[1]), two, driver.Queued).RetryAfter, next)
		l.same("nobody is told", len(l.heard), 0)
		over := two.Clone()
		delete(over, lensPrefix+lensKey)
		l.asksAt(renews(parties[1]), over, lensStart+1, driver.Granted)
		// The waiter leaves, and the record is folded while the lock is there.
		l.asks(releases(parties[1]), waiting, driver.Left)
		record := keptIn(l.server.Live())
		l.same("the lock", record.h, keys[lensPrefix+lensKey])
		l.same("the queue", record.z.Type(), "none")
		l.same("the record", record.r.Type(), "none")
		l.same("the counter", deref(record.c.Text), token)
		// The end of the foreign lock is noticed by the first release after it.
		l.asksAt(releases(parties[0]), over, lensStart+1, driver.Left)
	}
}

// playClosed makes parties ask for a room without its record, but with the mark before it.
func (l *lens) playClosed() {
	keys := microscope.Keys{lensPrefix + lensKey: textUntil("*", lensMS+300)}
	l.lists(keys, true, true)
	for _, s := range slices.Concat(ask(nil, parties[1]), ask(reads, parties[1])) {
		l.same(s.name, l.asks(s, keys, driver.Busy), driver.Reply{State: driver.Busy, RetryAfter: millis(300), Clock: micros(lensStart)})
		l.left(keys)
	}
	endless, err := l.on(microscope.Keys{lensPrefix + lensKey: microscope.Text("*")}).inspect(context.Background(), lensKey)
	l.must(err)
	l.same("closed for ever", endless.Closed, time.Duration(0))
	l.errors = nil
	for left, there := range []bool{false, true} {
		l.lists(microscope.Keys{lensPrefix + lensKey: textUntil("*", lensMS+int64(left))}, there, there)
	}
	snap, err := l.on(keys).inspect(context.Background(), lensKey)
	l.must(err)
	l.same("closed", snap, driver.Snapshot{Key: lensKey, Closed: millis(300)})
}

// playOneKey renews and releases leases by the scripts for one key. The ids have a common beginning, or would
// match each other as patterns.
func playOneKey(l *lens) {
	ids := []string{idA, idB, "b.c", "bxc", "b-c", "zb", "b0", strings.Repeat("z", 27)}
	for _, holder := range ids {
		for _, visit := range []string{"", "v/1"} {
			from := l.after(ask(visiting(visit), driver.Ref{ID: holder})...)
			for _, id := range ids {
				for _, ref := range []driver.Ref{{}, {TTL: 100 * time.Millisecond}, {Visit: "v/2"}, {Visit: "w"}, {RejectIDFor: lensForbid, SingleUseID: true}} {
					ref.ID, ref.Uncontended = id, true
					for _, s := range []step{releases(ref), renewsAlone(ref), renewsAmongOthers(ref)} {
						l.goOn(from, s)
					}
				}
			}
		}
	}
	short := microscope.Keys{lensPrefix + lensKey: textUntil("b x {} 9", lensMS+300)}
	l.same("the token of a short lease", l.asks(renews(driver.Ref{ID: idB, Uncontended: true}), short, driver.Granted).Token, 9)
	for _, text := range []string{idB + " ", idB + " x {}", idB + " x 0 1 0 0 300 0 0 A - {} ", "*"} {
		l.doing = fmt.Sprintf("a lease without a token: %q", text)
		keys := microscope.Keys{lensPrefix + lensKey: textUntil(text, lensMS+300)}
		_, err := l.take(renewsAlone(driver.Ref{ID: idB}), keys, lensStart, lensStart-1)
		l.must(err)
		l.left(keys)
	}
}

// renewsAlone renews by the script for one key, as in a slot that is being moved.
func renewsAlone(ref driver.Ref) step {
	s := renews(ref)
	ref.Key, ref.TTL = lensKey, cmp.Or(ref.TTL, lensTTL)
	s.name += " by its one key"
	s.ask = func(s *Store, _ int64) (driver.Reply, error) {
		answer := s.attempt(context.Background(), uncontendedScript, s.uncontendedCommand(&ref, true), Acks{})
		if answer.Err != nil || answer.Reply == nil {
			return driver.Reply{State: driver.Gone}, answer.Err
		}
		return parseRenewal(answer.Reply)
	}
	return s
}

// playVisits plays leases of all three forms that belong to several visits.
func playVisits(l *lens) {
	forms := [][]step{
		{},
		ask(queues, parties[1]),
		slices.Concat(ask(queues, parties[1]), each(releases, driver.Ref{ID: idB, RejectIDFor: lensForbid})),
	}
	pairs := [][2]string{
		{"v/1", "v/1"}, {"v/1", "v/2"}, {"v/1", "v/10"}, {"v/1", "v/1/y"}, {"v/1/x", "v/1"}, {"v/1/x/z", "v/2"}, {"v/1", "w"}, {"vv/1", "v/1"}, {"v", "vv"},
		{"v.1/x", "vx1/x"}, {"v", ""}, {"", "v"},
	}
	for i, change := range []func(*driver.Request){nil, nil, nil, reads, delays} {
		for _, pair := range pairs {
			other := pair[1]
			begin := ask(allOf(visiting(pair[0]), change), parties[0])
			if i < len(forms) {
				begin = append(begin, forms[i]...)
			}
			from := l.after(begin...)
			steps := slices.Concat(each(renews, driver.Ref{ID: idA, Visit: other}), each(releases, driver.Ref{ID: idA, Visit: other},
				driver.Ref{ID: idA, Visit: other, RejectIDFor: lensForbid, KeepClosed: lensKeep}, driver.Ref{ID: idA, Visit: other, RejectIDFor: lensForbid, SingleUseID: true}))
			if i == 0 || i == len(forms) {
				steps = append(steps, ask(allOf(visiting(other), change), parties[0])...)
			}
			for _, s := range steps {
				l.goOn(from, s)
			}
		}
	}
}

// playMany plays more readers behind a writer than one call hands the room to.
func playMany(l *lens) {
	for i, many := range []int{3, 63, 64, 65, 65} {
		release := driver.Ref{ID: idA}
		if i == 4 {
			release.RejectIDFor = lensForbid // by the general way
		}
		steps := ask(nil, parties[0])
		for i := range many {
			steps = append(steps, ask(allOf(reads, queues), driver.Ref{ID: fmt.Sprint("r", i), HintAddress: "B"})...)
		}
		steps = append(steps, releases(release), renews(driver.Ref{ID: "r1", HintAddress: "B"}), renews(driver.Ref{ID: fmt.Sprint("r", many-1), HintAddress: "B"}))
		l.after(steps...)
	}
}

// playThousands plays a room in which thousands of tickets have expired, or all but the last.
func playThousands(l *lens) {
	h := []byte(lensPrefix + lensKey)
	r, z := string(appendSide(nil, h, recordKey)), string(appendSide(nil, h, sortedKey))
	end := lensMS + 7_000_000
	for _, inside := range []bool{false, true} {
		for _, c := range []struct{ many, alive, scripts int }{{2*512 + 1, 0, 1}, {3*512 + 1, 0, 2}, {3 * 512, 1, 1}} {
			hash, scores, places := make(map[string]string), []microscope.Member(nil), []microscope.Member(nil)
			at := func(i int) int64 {
				if i < c.many {
					return lensMS - int64(c.many-i)
				}
				return lensMS + 100
			}
			for i := range c.many + c.alive {
				id := fmt.Sprintf("t%04d", i)
				state, rank, member := "w", strconv.FormatInt(lensBehind+int64(i), 10), microscope.Member{Name: "t" + id, Score: float64(at(i))}
				if inside {
					state, rank, member = "c", none, microscope.Member{Name: "i" + id, Score: float64(at(i) - lensBand)}
				} else {
					places = append(places, microscope.Member{Name: "q" + id, Score: float64(lensQueue + lensBehind + int64(i))})
				}
				hash[id] = fmt.Sprintf(`%s s 0 1 0 300 0 0 %s 0 - - {"o":"","s":5}`, state, rank)
				scores = append(scores, member)
			}
			all := c.many + c.alive
			keys := microscope.Keys{}
			anchor := []microscope.Member{{Name: "#", Score: float64(lensAnchor)}}
			if inside {
				keys[string(h)] = textUntil("*", lensMS+101)
				hash["#"] = fmt.Sprintf("7 %d 0 0 - 0 %d 0 %d %d - 0 %d %d 0 0 0", all, all, all, all, lensMS+100, end)
			} else {
				hash["#"] = fmt.Sprintf("7 %d 0 0 t0000 0 0 0 0 %d - 0 0 %d 0 0 0", all, all, end)
			}
			keys[r] = microscope.Value{Hash: hash, At: end}
			keys[z] = microscope.Value{Sorted: slices.Concat(scores, anchor, places), At: end}
			l.doing = fmt.Sprintf("%+v, %v", c, inside)
			in, err := l.on(keys).occupied(context.Background(), []string{lensKey}, false)
			l.must(err)
			l.same("listed", len(in), c.alive)
			before := l.runs
			want := driver.Granted
			if c.alive > 0 {
				want = driver.Busy // the waiter has no address, so it is let ask
			}
			l.asks(ask(nil, parties[0])[0], keys, want)
			l.same("scripts", l.runs-before, c.scripts)
			l.same("forbidden calls", l.errors, []string(nil))
		}
	}
}

// playLost plays rooms of which some parts are lost, and the remaining parts define the result.
func playLost(l *lens) {
	h := []byte(lensPrefix + lensKey)
	r, z := string(appendSide(nil, h, recordKey)), string(appendSide(nil, h, sortedKey))
	steps := slices.Concat(ask(nil, parties[0]), ask(reads, parties[2]), ask(queues, parties[1]), ask(allOf(reads, queues), parties[1]), ask(owner("me"), parties[2]),
		ask(delays, parties[2]), each(releases, parties[1]), each(releases, driver.Ref{ID: idB, RejectIDFor: lensForbid}), each(renews, parties[1]))
	readers := l.after(ask(reads, parties[0], parties[2])...)
	queue := l.after(slices.Concat(ask(nil, parties[0]), ask(allOf(queues), parties[1]))...)
	lost := []*situation{readers.pass(0, "the scalars are lost"), readers.pass(0, "the queue is lost"), readers.pass(0, "all but the queue is lost")}
	for i, s := range lost {
		switch i {
		case 0:
			s.keys[r] = with(s.keys[r], "#", "nonsense")
		case 1:
			delete(s.keys, z)
		case 2:
			delete(s.keys, r)
		}
		delete(s.keys, string(h))
		s.record = &room.Record{Token: s.record.Token}
	}
	first := l.after(ask(reads, parties[0])...)
	words := l.goOn(first.pass(time.Millisecond.Microseconds(), "later"), ask(reads, parties[2])...)
	words.keys[r] = without(words.keys[r], idA)
	words = words.pass((lensTTL - time.Millisecond).Microseconds(), "it is over")
	l.doing = "beside a reader whose words are lost"
	l.asksAt(ask(reads, parties[1])[0], words.keys, words.now, driver.Granted)
	l.same("insiders", keptIn(l.server.Live()).scalar(6), 2)
	l.same("exclusive ones", keptIn(l.server.Live()).scalar(7), 0)
	mark := queue.pass(0, "the holder key is lost")
	delete(mark.keys, string(h))
	mark.record.Inside = nil
	l.playLostWords()
	place := queue.keys.Clone()
	v := place[z]
	v.Sorted = slices.DeleteFunc(slices.Clone(v.Sorted), func(m microscope.Member) bool { return m.Name == "i"+idA })
	place[z] = v
	l.doing = "without a place inside"
	l.same("when next", l.asks(ask(nil, parties[2])[0], place, driver.Busy).RetryAfter, lensTTL)
	l.same("when next", l.asksAt(ask(nil, parties[2])[0], place, (lensMS+lensTTL.Milliseconds())*1000, driver.Busy).RetryAfter, time.Millisecond)
	noPlace := queue.pass(0, "the holder key and a place are lost")
	noPlace.keys = place.Clone()
	delete(noPlace.keys, string(h))
	noPlace.keys[r] = without(noPlace.keys[r], idA)
	noPlace.record.Inside = nil
	delayed := l.after(slices.Concat(ask(delays, parties[0]), ask(queues, parties[1]))...)
	delayed = delayed.pass(0, "the holder key of a lease with a delay is lost")
	delete(delayed.keys, string(h))
	delayed.record.Inside = nil
	counter := l.after(ask(nil, parties[0])...)
	counter = counter.pass(0, "the counter is lost")
	delete(counter.keys, lensPrefix+counterKey)
	for _, s := range append(lost, mark, noPlace, delayed, counter) {
		l.doing = s.last
		for _, step := range steps {
			l.goOn(s, step)
		}
	}
}

// playLostWords plays parties whose fields are lost, once their time is over.
func (l *lens) playLostWords() {
	r := string(appendSide(nil, []byte(lensPrefix+lensKey), recordKey))
	lone := l.after(ask(reads, parties[0])...)
	lone.keys[r] = without(lone.keys[r], idA)
	lone = lone.pass(lensTTL.Microseconds(), "it ends")
	l.server.Keys, l.server.Now = lone.keys.Clone(), lone.now
	snap, err1 := l.store.inspect(context.Background(), lensKey)
	in, err2 := l.store.occupied(context.Background(), []string{lensKey}, true)
	l.must(errors.Join(err1, err2))
	l.same("closed", snap.Closed, time.Duration(0))
	l.same("listed", len(in), 0)

	l.doing = "a record that is another's"
	other := microscope.Keys{r: {Hash: map[string]string{"a": "b"}, At: lensMS + 300}}
	_, err := l.take(ask(nil, parties[0])[0], other, lensStart, lensStart-1)
	l.same("error", kind(err), driver.ErrMismatch)
	l.left(other)

	for _, c := range []struct {
		first, second, then step
		want                driver.State
	}{
		{ask(owner("me"), parties[0])[0], ask(owner("me"), parties[1])[0], ask(reads, parties[2])[0], driver.Busy},
		{ask(places(1, 2), parties[0])[0], ask(allOf(places(2, 2), queuesFor(2*lensTTL)), parties[2])[0], renews(parties[2]), driver.Granted},
	} {
		l.doing = "after " + c.first.name
		from := l.goOn(l.after(c.first).pass(time.Millisecond.Microseconds(), "later"), c.second)
		from.keys[r] = without(from.keys[r], idA)
		from = from.pass((lensTTL - time.Millisecond).Microseconds(), "it is over")
		l.asksAt(c.then, from.keys, from.now, c.want)
	}
}
