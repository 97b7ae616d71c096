package redisroom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
	"github.com/leasehold-go/leasehold/internal/test/microscope"
)

// lens runs the driver over an interpreter of the scripts. It is for one goroutine.
type lens struct {
	Client // for the methods that the driver does not call

	server *microscope.Server
	store  *Store
	texts  map[string]string // of the scripts, by their digests
	runs   int
	// commands is the number of commands of the scripts.
	commands int
	// unfinished is the number of consecutive scripts that did not finish.
	unfinished int
	// errors are the violations by the scripts of the last step.
	errors []string
	// calls and heard are the commands and messages of the scripts of the last step.
	calls []microscope.Call
	heard []microscope.Message
	// disturbed is set while a failure is injected, so that an error in Lua is allowed.
	disturbed bool
	// deaf is set while hints are lost, forgetful while it is unknown whether an id was used.
	deaf, forgetful bool
	// several is set while a script handles several rooms: a write for one room may precede the
	// failure for another, since a renewal is repeated.
	several bool
	// at is the situation of the last step, and doing names the part of an exploration that is
	// under way.
	at    *situation
	doing string
	// ran is called after every script.
	ran func(r run)
	// slack is by how much the remaining time of a lease may differ from the rule's.
	slack time.Duration
}

// lensPrefix is the prefix of the keys, lensKey is the only lock.
const (
	lensPrefix = "p:"
	lensKey    = "k"
)

func newLens(now int64) *lens { return newLensOn(microscope.New(now)) }

func newLensOn(server *microscope.Server) *lens {
	l := &lens{server: server, texts: make(map[string]string)}
	for _, sc := range everyScript() {
		for _, f := range []*form{sc.main(), sc.plain()} {
			l.texts[f.sha] = f.text
		}
	}
	l.store = New(l, l, Options{Prefix: lensPrefix, Timeout: DefaultTimeout})
	return l
}

func everyScript() []*script {
	return []*script{
		acquireScript, onceScript, renewScript, renewUncontended, releaseScript, breakScript, inspectScript, listScript, markScript, uncontendedScript,
	}
}

func (l *lens) Cluster() bool   { return false }
func (l *lens) Changes() uint64 { return 0 }
func (l *lens) Connect(int)     {}

func (l *lens) Run(ctx context.Context, cmds [][]string, _ Acks, each func(int, Answer)) {
	for i, cmd := range cmds {
		reply, err := l.Do(ctx, cmd)
		each(i, Answer{Reply: reply, Err: err})
	}
}

// maxUnfinished is how often a call that has much to remove is repeated, at most.
const maxUnfinished = 10

// Do runs a script, and checks its commands.
func (l *lens) Do(_ context.Context, cmd []string) (any, error) {
	if cmd[0] != evalsha {
		return nil, ReplyError("ERR not a script")
	}
	keys, err := strconv.Atoi(cmd[2])
	if err != nil {
		return nil, err
	}
	l.runs++
	before := l.server.Live()
	reply, err := l.server.Run(l.texts[cmd[1]], cmd[3:3+keys], cmd[3+keys:])
	if l.ran != nil {
		l.ran(run{text: l.texts[cmd[1]], keys: cmd[3 : 3+keys], args: cmd[3+keys:], before: before, now: l.server.Now, reply: reply, err: err, after: l.server.Live()})
	}
	l.calls = append(l.calls, l.server.Calls...)
	l.commands += len(l.server.Calls)
	l.heard = append(l.heard, l.server.Published...)
	l.look(err)
	answer := any(nil)
	if err == nil {
		answer = readable(reply)
	}
	if l.endless(answer, err) {
		l.errorf("the call does not end")
		return nil, ReplyError("ERR it does not end")
	}
	if err != nil {
		return nil, ReplyError(err.Error())
	}
	return answer, nil
}

// endless reports whether a call was repeated too often because it had much to remove.
func (l *lens) endless(answer any, err error) bool {
	parts, _ := answer.([]any)
	more := err != nil && isUnfinished(ReplyError(err.Error())) || slices.ContainsFunc(parts, func(part any) bool {
		refusal, ok := part.(ReplyError)
		return ok && isUnfinished(refusal)
	})
	l.unfinished++
	if !more {
		l.unfinished = 0
	}
	return l.unfinished > maxUnfinished
}

// run is a script that has run.
type run struct {
	text          string
	keys, args    []string
	before, after microscope.Keys
	now           int64
	reply         any
	err           error
}

// readable makes a client's reply of the interpreter's.
func readable(reply any) any {
	switch reply := reply.(type) {
	case microscope.Error:
		return ReplyError(reply)
	case microscope.Status:
		return string(reply)
	case []any:
		for i := range reply {
			reply[i] = readable(reply[i])
		}
	}
	return reply
}

// look checks the rules for all scripts: a script does not fail half-way, no command that can
// fail follows its first write, and every key expires.
func (l *lens) look(err error) {
	calls := l.server.Calls
	wrote := len(calls) > 0 && (calls[len(calls)-1].Wrote || calls[len(calls)-1].Changed)
	var lua *microscope.ScriptError
	switch {
	case errors.As(err, &lua) && strings.Contains(lua.Text, context.DeadlineExceeded.Error()):
		l.errorf("the script does not end")
	case errors.As(err, &lua) && (wrote || !l.disturbed):
		l.errorf("Lua fails: %v", err)
	case err != nil && wrote && raised(calls) && !l.several:
		l.errorf("a command fails after the first write: %v", err)
	}
	for i, c := range calls {
		if c.Wrote && !c.Caught && !l.several && microscope.CanFail(calls, i) {
			l.errorf("%q can fail, after the first write", c.Words)
		}
	}
	for _, key := range l.server.Lasting() {
		if key != lensPrefix+markKey {
			l.errorf("the key %q never ends", key)
		}
	}
}

// raised reports whether the last command has ended the script.
func raised(calls []microscope.Call) bool {
	last := calls[len(calls)-1]
	return last.Failed != "" && !last.Caught
}

func (l *lens) errorf(format string, args ...any) {
	l.errors = append(l.errors, fmt.Sprintf(format, args...))
}

// step is one call of the driver.
type step struct {
	name string
	// ask makes the call; least is the least token of serverClock.
	ask func(s *Store, least int64) (driver.Reply, error)
	// rule is the same call of the rule.
	rule func(r *room.Record, now int64) (driver.Reply, []room.Wake, error)
	// id is that of the party.
	id string
	// wait is the time that passes instead, in a story.
	wait time.Duration
}

func acquires(req driver.Request) step {
	name := "acquire " + brief(req)
	req.Key, req.TTL, req.ConfirmWindow, req.Since = lensKey, cmp.Or(req.TTL, lensTTL), cmp.Or(req.ConfirmWindow, lensWindow), time.UnixMilli(5)
	same := req
	same.Guard = false // the rule has no mark; plays define the results
	return step{
		name: name,
		id:   req.ID,
		ask: func(s *Store, least int64) (driver.Reply, error) {
			return s.acquire(context.Background(), &req, least, plainly)
		},
		rule: func(r *room.Record, now int64) (driver.Reply, []room.Wake, error) { return room.Acquire(r, same, now) },
	}
}

func renews(ref driver.Ref) step {
	name := "renew " + brief(ref)
	ref.Key, ref.TTL, ref.TicketTTL = lensKey, cmp.Or(ref.TTL, lensTTL), cmp.Or(ref.TicketTTL, lensTicket)
	return step{
		name: name,
		id:   ref.ID,
		ask: func(s *Store, _ int64) (reply driver.Reply, err error) {
			s.Renew(context.Background(), []driver.Ref{ref}, func(_ int, r driver.Reply, e error) { reply, err = r, e })
			return reply, err
		},
		rule: func(r *room.Record, now int64) (driver.Reply, []room.Wake, error) {
			reply, wakes := room.Renew(r, ref, now)
			return reply, wakes, nil
		},
	}
}

// renewsAmongOthers renews together with leases of two empty rooms.
func renewsAmongOthers(ref driver.Ref) step {
	s := renews(ref)
	ref.Key, ref.TTL, ref.TicketTTL = lensKey, lensTTL, lensTicket
	before, after := ref, ref
	before.Key, after.Key = "j", "l"
	s.name += " among others"
	s.ask = func(s *Store, _ int64) (reply driver.Reply, err error) {
		var others []driver.State
		l := s.main.(*lens)
		l.several = true
		defer func() { l.several = false }()
		s.Renew(context.Background(), []driver.Ref{before, ref, after}, func(i int, r driver.Reply, e error) {
			if i == 1 {
				reply, err = r, e
			} else if e == nil {
				others = append(others, r.State)
			}
		})
		if err == nil && !slices.Equal(others, []driver.State{driver.Gone, driver.Gone}) {
			err = fmt.Errorf("of the other rooms it says %v", others)
		}
		return reply, err
	}
	return s
}

func releases(ref driver.Ref) step {
	name := "release " + brief(ref)
	ref.Key = lensKey
	return step{
		name: name,
		id:   ref.ID,
		ask:  func(s *Store, _ int64) (driver.Reply, error) { return s.Release(context.Background(), ref) },
		rule: func(r *room.Record, now int64) (driver.Reply, []room.Wake, error) {
			reply, wakes := room.Release(r, ref, now)
			return reply, wakes, nil
		},
	}
}

func breaks(id string) step {
	return step{
		name: "break " + id,
		id:   id,
		ask: func(s *Store, _ int64) (driver.Reply, error) {
			return s.Break(context.Background(), lensKey, id, "why")
		},
		rule: func(r *room.Record, now int64) (driver.Reply, []room.Wake, error) {
			reply, wakes := room.Break(r, lensKey, id, "why", now)
			return reply, wakes, nil
		},
	}
}

// Durations of the steps: different, so that different things end at different times.
const (
	lensTTL    = 1000 * time.Millisecond
	lensTicket = 700 * time.Millisecond
	lensWindow = 300 * time.Millisecond
	lensDelay  = 250 * time.Millisecond
	lensKeep   = 150 * time.Millisecond
	lensForbid = 400 * time.Millisecond
)

// brief names the fields of a request or a reference that are set.
func brief(of any) string {
	var words []string
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			words = append(words, fmt.Sprintf("%s=%v", v.Type().Field(i).Name, f))
		}
	}
	return strings.Join(words, " ")
}

// take takes a step of the driver on the keys at the time. The result stays in the lens.
func (l *lens) take(s step, keys microscope.Keys, now, least int64) (driver.Reply, error) {
	l.server.Keys, l.server.Now = keys.Clone(), now
	l.errors, l.calls, l.heard = nil, nil, nil
	return s.ask(l.store, least)
}

// situation is a room as the scripts keep it and as the rule does.
type situation struct {
	keys   microscope.Keys
	record *room.Record
	now    int64
	// floor is the greatest token that was granted, minus a reading of the clock.
	floor, least int64
	depth        int
	last         string // the step that led here
	from         *situation
}

func (s *situation) path() string {
	var steps []string
	for ; s != nil && s.from != nil; s = s.from {
		steps = append(steps, s.last)
	}
	slices.Reverse(steps)
	return strings.Join(steps, "; ")
}

// lensStart is the time at which every world begins, in µs: in the midst of a
// millisecond.
const lensStart = int64(1_760_000_000_123_456)

func beginning() *situation {
	return &situation{keys: microscope.Keys{}, record: new(room.Record), now: lensStart, least: lensStart - 1}
}

func (s *situation) holderKey() microscope.Value { return s.keys[lensPrefix+lensKey] }

// stale reports whether a key contains a lease or a used id in the millisecond in which it ended.
// It is gone in the next millisecond.
func (s *situation) stale() bool {
	ms, used := s.now/1000, 0
	for name, v := range s.keys {
		if strings.Contains(name, spentKey) && v.At == ms {
			used++
		}
	}
	for _, value := range s.record.Spent {
		if room.SpentUntil(value) == ms {
			used--
		}
	}
	h := s.holderKey()
	if h.Text == nil || *h.Text == "*" || h.At != ms {
		return used > 0
	}
	id, _, _ := strings.Cut(*h.Text, " ")
	return used > 0 || !slices.ContainsFunc(s.record.Inside, func(p room.Party) bool { return p.ID == id })
}

// follow takes a step by the driver and by the rule, and compares. It returns the next situation.
func (l *lens) follow(from *situation, s step) (*situation, error) {
	got, gotErr := l.take(s, from.keys, from.now, from.least)
	keys := l.server.Live()
	if len(l.errors) > 0 {
		return nil, errors.New(strings.Join(l.errors, "; "))
	}
	if us := got.Clock.Microseconds(); us != 0 && us != from.now {
		return nil, fmt.Errorf("the server's clock reads %d, want %d", us, from.now)
	}
	var first error
	for i, record := range from.readings() {
		l.slack = slack(i)
		record, err := l.agree(from, record, s, got, gotErr, keys)
		if err == nil && i == 0 {
			err = sameKeys(from, keys, record, from.now)
		}
		if err == nil {
			if i > 0 {
				ends(record, from.now/1000+1, from.now/1000)
			}
			next := &situation{keys: keys, record: record, now: from.now, least: from.least, floor: max(from.floor, record.Token), depth: from.depth + 1, last: s.name, from: from}
			return next, l.grown(from, s, got)
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// grown checks that a new token is greater than the tokens before it.
func (l *lens) grown(from *situation, s step, got driver.Reply) error {
	if got.State != driver.Granted || from.record.Token == 0 {
		return nil
	}
	for _, p := range from.record.Inside {
		if p.ID == s.id || p.Reenter {
			return nil
		}
	}
	if got.Token <= from.floor && !slices.ContainsFunc(from.record.Inside, func(p room.Party) bool { return p.Token == got.Token }) {
		return fmt.Errorf("token %d after %d", got.Token, from.floor)
	}
	return nil
}

// readings returns the records that the keys of a situation may mean: in the millisecond in which
// the lease of a lone holder or a used id ends, it counts as over or not, since its key is still
// there.
func (s *situation) readings() []*room.Record {
	all := []*room.Record{copyRecord(s.record)}
	ms := s.now / 1000
	if h := s.holderKey(); h.Text != nil && *h.Text != "*" && h.At == ms {
		late := copyRecord(s.record)
		ends(late, ms, ms+1)
		all = append(all, late)
	}
	for _, r := range all {
		late := copyRecord(r)
		for hash, value := range late.Spent {
			if room.SpentUntil(value) == ms {
				late.Spent[hash] = value + 2
			}
		}
		if !maps.Equal(late.Spent, r.Spent) {
			all = append(all, late)
		}
	}
	return all
}

// slack is by how much a reading but the first may be off.
func slack(reading int) time.Duration {
	if reading == 0 {
		return 0
	}
	return time.Millisecond
}

// ends changes the end of all holders that end at a time.
func ends(r *room.Record, at, instead int64) {
	for i := range r.Inside {
		if r.Inside[i].Expiry == at {
			r.Inside[i].Expiry = instead
		}
	}
}

func copyRecord(r *room.Record) *room.Record {
	c := *r
	c.Inside, c.Queue = slices.Clone(r.Inside), slices.Clone(r.Queue)
	c.Marks, c.Spent = maps.Clone(r.Marks), maps.Clone(r.Spent)
	return &c
}

// agree takes the step by the rule, and compares answer, hints and picture.
func (l *lens) agree(from *situation, record *room.Record, s step, got driver.Reply, gotErr error, keys microscope.Keys) (*room.Record, error) {
	last := record.Token
	want, wakes, wantErr := s.rule(record, from.now)
	for _, kind := range []error{driver.ErrInvalid, driver.ErrMismatch} {
		if errors.Is(gotErr, kind) != errors.Is(wantErr, kind) {
			return nil, fmt.Errorf("error %q, want %q", fmt.Sprint(gotErr), fmt.Sprint(wantErr))
		}
	}
	if gotErr != nil && wantErr == nil {
		return nil, gotErr
	}
	// A lone holder gets the next token, where the rule takes the clock's.
	if got.State == driver.Granted && want.State == driver.Granted && got.Clock == 0 && got.Token > last && want.Token > last {
		want.Token, record.Token = got.Token, got.Token
		if i := slices.IndexFunc(record.Inside, func(p room.Party) bool { return p.ID == s.id }); i >= 0 {
			record.Inside[i].Token = got.Token
		}
	}
	if wantErr == nil {
		if l.forgetful {
			got.Replayed = want.Replayed
		}
		if !l.sameReply(got, want) {
			return nil, fmt.Errorf("answer\n got %+v\nwant %+v", got, want)
		}
		if err := sameHints(l.heard, wakes); err != nil && !l.deaf {
			return nil, err
		}
	}
	if err := lasts(keys); err != nil {
		return nil, err
	}
	return record, l.samePicture(keys, record, from.now)
}

// lasts checks that the record outlives the holder key, and that record and counter outlive the
// time until which a seed by the clock would not exceed their tokens.
func lasts(keys microscope.Keys) error {
	k := keptIn(keys)
	if k.r.Type() != "none" && (k.r.At < k.own()/1000 || k.r.At < k.h.At) {
		return fmt.Errorf("the record ends at %d, its token is %d, and the holder key ends at %d", k.r.At, k.own(), k.h.At)
	}
	if k.c.At < k.counter()/1000 {
		return fmt.Errorf("the counter ends at %d, its token is %d", k.c.At, k.counter())
	}
	return nil
}

func (l *lens) sameReply(a, b driver.Reply) bool {
	if a.State == driver.Released {
		b.Token = 0
	}
	same := a.State == b.State && a.Token == b.Token && a.Holds == b.Holds && a.Position == b.Position && a.Places == b.Places && a.Wanted == b.Wanted && (a.RetryAfter-b.RetryAfter).Abs() <= l.slack &&
		a.Broken == b.Broken && a.Reason == b.Reason && a.Replayed == b.Replayed && len(a.Holders) == len(b.Holders)
	if !same || len(a.Holders) == 0 {
		return same
	}
	// If several holders end at the same time, either may be shown.
	return a.Holders[0].ID != b.Holders[0].ID && (a.Holders[0].Remaining-b.Holders[0].Remaining).Abs() <= l.slack || l.sameHolder(a.Holders[0], b.Holders[0])
}

func (l *lens) sameHolder(a, b driver.Holder) bool {
	return a.ID == b.ID && a.Owner == b.Owner && a.Mode == b.Mode && a.Weight == b.Weight && a.Places == b.Places && a.Token == b.Token &&
		(a.Remaining-b.Remaining).Abs() <= l.slack && a.Confirmed == b.Confirmed && !a.Foreign
}

// sameHints compares the published hints with the hints of the rule, address by address.
func sameHints(heard []microscope.Message, wakes []room.Wake) error {
	got, want := make(map[string][]driver.Hint), make(map[string][]driver.Hint)
	for _, m := range heard {
		hint, ok := parseHint(lensPrefix, m.Text)
		if !ok {
			return fmt.Errorf("the hint %q says nothing", m.Text)
		}
		if m.Channel == broadcastChannel(lensPrefix) {
			m.Channel = room.Everybody
		}
		got[m.Channel] = append(got[m.Channel], hint)
	}
	for _, w := range wakes {
		want[w.Address] = append(want[w.Address], w.Hint)
	}
	for address := range got {
		if _, ok := want[address]; !ok {
			want[address] = nil
		}
	}
	for address := range want {
		if !slices.Equal(got[address], want[address]) {
			return fmt.Errorf("hints at %s\n got %+v\nwant %+v", address, got[address], want[address])
		}
	}
	return nil
}

// samePicture compares the inspection, on a copy of the keys.
func (l *lens) samePicture(keys microscope.Keys, record *room.Record, now int64) error {
	l.server.Keys, l.server.Now = keys.Clone(), now
	got, err := l.store.inspect(context.Background(), lensKey)
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if !l.server.Keys.Same(keys) {
		return errors.New("inspect changes keys")
	}
	want := room.Look(record, lensKey, now)
	byID := func(a, b driver.Holder) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(got.Holders, byID)
	slices.SortFunc(want.Holders, byID)
	known := got.Token <= want.Token // a free lock seldom has one of its own
	if k := keptIn(keys); k.r.Text != nil && k.h.Text == nil {
		known = got.Token == k.own()
	}
	for _, h := range want.Holders {
		known = known && got.Token >= h.Token
	}
	same := known && got.Limit == want.Limit && got.Closed == want.Closed &&
		slices.EqualFunc(got.Holders, want.Holders, l.sameHolder) &&
		slices.EqualFunc(got.Waiters, want.Waiters, func(a, b driver.Waiter) bool {
			return a.ID == b.ID && a.Mode == b.Mode && a.Weight == b.Weight && a.Position == b.Position && a.Remaining == b.Remaining
		})
	if !same {
		return fmt.Errorf("picture\n got %+v\nwant %+v", got, want)
	}
	return nil
}

// pass lets time pass.
func (s *situation) pass(us int64, name string) *situation {
	next := *s
	next.now, next.record = s.now+us, copyRecord(s.record)
	next.depth, next.last, next.from = s.depth+1, name, s
	next.keys = s.keys.Clone()
	for key, v := range next.keys {
		if v.At != 0 && next.now/1000 > v.At {
			delete(next.keys, key)
		}
	}
	return &next
}

// next returns when the next part of the room ends, in ms; 0 if no part ends within ten seconds.
func (s *situation) next() int64 {
	ms, soonest := s.now/1000, int64(0)
	see := func(at int64) {
		if at > ms && at < ms+10_000 && (soonest == 0 || at < soonest) {
			soonest = at
		}
	}
	for _, v := range s.keys {
		see(v.At)
	}
	for _, p := range slices.Concat(s.record.Inside, s.record.Queue) {
		see(p.Expiry)
		see(p.Expiry + p.Delay)
		if p.Called > 0 {
			see(p.Called + p.Window)
		}
	}
	for _, m := range s.record.Marks {
		see(m.Until)
	}
	see(s.record.Closed)
	return soonest
}

// later returns the situations after time has passed: just before, at and just after the next end
// of a part.
func (s *situation) later() (all []*situation) {
	at := s.next()
	if at == 0 {
		return nil
	}
	if s.now < at*1000-1 {
		all = append(all, s.pass(at*1000-1-s.now, "just before the next end"))
	}
	return append(all, s.pass(at*1000-s.now, "the next end"), s.pass((at+1)*1000-s.now, "just after the next end"))
}

// canon returns a name of a situation that does not depend on the time of day or on the tokens.
func (s *situation) canon() string {
	var b strings.Builder
	ms := s.now / 1000
	names := make([]string, 0, len(s.keys))
	for name := range s.keys {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		v := s.keys[name]
		fmt.Fprintf(&b, "%q %d\n", name, coarse(v.At-ms))
		if v.Text != nil {
			s.relative(&b, *v.Text)
		}
		fields := make([]string, 0, len(v.Hash))
		for field := range v.Hash {
			fields = append(fields, field)
		}
		slices.Sort(fields)
		for _, field := range fields {
			b.WriteString(field)
			s.relative(&b, v.Hash[field])
		}
		for _, m := range v.Sorted {
			score := int64(m.Score)
			switch {
			case score < 0:
				score += 1<<45 - ms
			case score < 1<<49:
				score -= ms
			}
			fmt.Fprintf(&b, "%s %d\n", m.Name, score)
		}
	}
	return b.String()
}

// coarse removes the time by which a counter outlives its lock.
func coarse(ms int64) int64 {
	const fine = 20 * 60_000
	if ms > fine {
		return ms / 600_000 * 600_000
	}
	return ms
}

// relative writes a text with its times relative to now. Of its tokens it writes only whether
// they are ahead of the clock.
func (s *situation) relative(b *strings.Builder, text string) {
	for word := range strings.SplitSeq(text, " ") {
		n, err := strconv.ParseInt(word, 10, 64)
		switch {
		case err == nil && len(word) == 13:
			fmt.Fprintf(b, " %d", coarse(n-s.now/1000))
		case err == nil && len(word) == 16:
			fmt.Fprintf(b, " t%d", min(1, max(-1, n-s.now)))
		default:
			b.WriteString(" " + word)
		}
	}
	b.WriteByte('\n')
}
