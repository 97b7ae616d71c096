package redisroom

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
	"github.com/leasehold-go/leasehold/internal/test/microscope"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

var (
	microscopeStates = flag.Int("microscope.states", 0, "how many situations of each world the microscope goes on from")
	microscopeUpdate = flag.Bool("microscope.update", false, "write down how many commands the steps of each world take")
	microscopeFaults = flag.Int("microscope.faults", 0, "in how many of them everything fails in turn")
)

// bounds limit an exploration: how many situations it continues from, and in how many of the
// first situations it injects failures, stalls and damage.
type bounds struct{ states, failed, damaged int }

// normal returns the bounds of the long tests. The race detector makes the interpreter several
// times slower, and the interpreter has no concurrency to check.
func normal() bounds {
	b := bounds{states: 120, failed: 8, damaged: 4}
	if skip.Race || testing.Short() {
		b = few
	}
	if *microscopeStates > 0 {
		b.states = *microscopeStates
	}
	if *microscopeFaults > 0 {
		b.failed, b.damaged = *microscopeFaults, *microscopeFaults
	}
	return b
}

// few are small bounds within which most faults are found.
var few = bounds{states: 30, failed: 3, damaged: 2}

// explored counts the situations of an exploration; commands counts the commands of the steps from
// its first situations.
type explored struct{ situations, depth, commands int }

// violation is an error that ends an exploration.
type violation struct{ error }

// must ends the exploration if there is an error.
func (l *lens) must(err error) {
	if err != nil {
		panic(violation{err})
	}
}

// never ends the exploration if the condition holds.
func (l *lens) never(bad bool, format string, args ...any) {
	if bad {
		l.must(fmt.Errorf(format, args...))
	}
}

// lawful ends the exploration if a script of the last step broke a rule for all scripts.
func (l *lens) lawful() { l.never(len(l.errors) > 0, "%s", strings.Join(l.errors, "; ")) }

// explore takes every step from every situation, breadth first.
func (l *lens) explore(w world, b bounds) (seen explored, err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case violation:
			err = fmt.Errorf("%s, after %s: %w", l.doing, l.at.path(), v.error)
		default:
			panic(v)
		}
	}()
	if w.calm {
		b.failed, b.damaged = 0, 0
	}
	if w.play != nil {
		w.play(l)
		return explored{commands: l.commands}, nil
	}
	known := make(map[string]bool)
	queue := []*situation{l.after(w.begin...)}
	for len(queue) > 0 && seen.situations < b.states {
		from := queue[0]
		queue = queue[1:]
		name := from.canon()
		if known[name] {
			continue
		}
		known[name] = true
		seen.situations++
		seen.depth = from.depth
		l.at, l.doing = from, "list"
		l.listed(from)
		queue = append(queue, from.later()...)
		for _, s := range w.steps {
			next := l.goOn(from, s)
			if seen.situations <= few.states {
				seen.commands += len(l.calls)
			}
			if !next.stale() {
				queue = append(queue, next)
			}
		}
		if seen.situations <= b.damaged {
			l.listedDamaged(from)
		}
		for _, try := range []struct {
			most int
			try  func(*situation, step)
		}{{b.failed, l.fail}, {b.failed, l.stall}, {b.damaged, l.damage}} {
			if seen.situations <= try.most {
				for _, s := range w.steps {
					try.try(from, s)
				}
			}
		}
	}
	return seen, nil
}

// listed checks that the lock is listed if it has holders or waiters or is closed, and only then.
func (l *lens) listed(from *situation) {
	l.server.Keys, l.server.Now = from.keys.Clone(), from.now
	l.errors = nil
	in, err := l.store.occupied(context.Background(), []string{lensKey}, l.store.prefix != "")
	l.must(err)
	l.lawful()
	there := from.record.Closed > from.now/1000
	for _, p := range slices.Concat(from.record.Inside, from.record.Queue) {
		there = there || p.Expiry > from.now/1000
	}
	for _, p := range from.record.Inside {
		there = there || p.Delay > 0 && p.Expiry+p.Delay > from.now/1000
	}
	if h := from.holderKey(); h.At == from.now/1000 {
		return // the last millisecond
	}
	l.never(there != (len(in) > 0), "listed %q, want %v", in, there)
	l.glanced(from.keys)
}

// glanced compares a glance with an inspection.
func (l *lens) glanced(keys microscope.Keys) {
	ctx := context.Background()
	l.server.Keys = keys.Clone()
	all, err1 := l.store.inspect(ctx, lensKey)
	some, err2 := l.store.Glance(ctx, lensKey)
	l.never(len(some.Waiters) > 0 || err1 == nil && len(all.Waiters) == 0 && some.Limit != all.Limit, "a glance shows %+v of %+v", some, all)
	all.Waiters, some.Limit = nil, all.Limit // the limit is only shown with shared holders
	l.same("a glance", some, all)
	l.same("its error", kind(err2), kind(err1))
}

// listedDamaged compares the listing of damaged keys with their inspection.
func (l *lens) listedDamaged(from *situation) {
	ctx := context.Background()
	for what, keys := range damaged(from.keys) {
		l.server.Keys, l.server.Now = keys.Clone(), from.now
		l.errors = nil
		snap, err := l.store.inspect(ctx, lensKey)
		in, listErr := l.store.occupied(ctx, []string{lensKey}, l.store.prefix != "")
		there := err == nil && (len(snap.Holders)+len(snap.Waiters) > 0 || snap.Closed > 0)
		l.doing = "list " + what
		l.never(err != nil && !errors.Is(err, driver.ErrMismatch) || listErr != nil, "inspect: %w; list: %w", err, listErr)
		l.lawful()
		if h := keys[lensPrefix+lensKey]; h.At > 0 && h.At <= from.now/1000+1 {
			continue // the last millisecond
		}
		l.never(snap.Token != 0 && snap.Token != from.record.Token && snap.Token != from.now, "inspection shows token %d", snap.Token)
		if there && len(in) == 0 || !there && len(in) > 0 && keptIn(keys).whole() {
			l.must(fmt.Errorf("listed %q, and inspection shows %+v of\n%s", in, snap, show(keys)))
		}
		l.glanced(keys)
	}
}

// oom is an error that a server may return to a command with any keys.
const oom = microscope.Error("OOM command not allowed when used memory > 'maxmemory'.")

// fail makes each command fail in turn that can: every command before the first write, and after
// it the commands whose failure the script catches. The keys are afterwards as before, or as the
// answer reports.
func (l *lens) fail(from *situation, s step) {
	_, _ = l.take(s, from.keys, from.now, from.least)
	calls := slices.Clone(l.calls)
	defer l.calm()
	for i, c := range calls {
		if c.Wrote && (!c.Caught || !microscope.CanFail(calls, i) && c.Words[0] != "PUBLISH" && c.Words[0] != "TIME") {
			continue // it cannot fail, as look checks
		}
		failures := []microscope.Error{oom}
		if c.Caught && c.Words[0] != "TIME" && c.Words[0] != "PUBLISH" {
			failures = append(failures, "WRONGTYPE Operation against a key holding the wrong kind of value")
		}
		for _, failure := range failures {
			l.doing = fmt.Sprintf("%s where %q, call %d, fails with %q", s.name, c.Words, i, string(failure))
			l.failAt(from, s, i, failure)
		}
	}
}

// calm ends all disturbances of the scripts.
func (l *lens) calm() { l.server.Before, l.disturbed, l.deaf, l.forgetful = nil, false, false, false }

func (l *lens) failAt(from *situation, s step, at int, failure microscope.Error) {
	l.calm()
	l.disturbed = true
	count := 0
	l.server.Before = func(c *microscope.Call) microscope.Error {
		count++
		if count-1 != at {
			return ""
		}
		l.deaf, l.forgetful = c.Words[0] == "PUBLISH", c.Words[0] == "GET" && strings.Contains(c.Words[1], spentKey)
		return failure
	}
	got, gotErr := l.take(s, from.keys, from.now, from.least)
	keys := l.server.Live()
	l.server.Before = nil
	if gotErr != nil && strings.Contains(gotErr.Error(), "key of the counter") && !keys.Same(from.keys) {
		// The refusal has removed what was over: asked again, the room answers as before.
		got, gotErr = l.take(s, keys, from.now, from.least)
		keys = l.server.Live()
	}
	l.lawful()
	if gotErr == nil || !keys.Same(from.keys) {
		if err := l.agrees(from, s, got, gotErr, keys); err != nil {
			l.must(fmt.Errorf("%w, and has changed\n%s\ninto\n%s", err, show(from.keys), show(keys)))
		}
	}
}

// agrees compares the answer with the rule's.
func (l *lens) agrees(from *situation, s step, got driver.Reply, gotErr error, keys microscope.Keys) (first error) {
	for i, record := range from.readings() {
		l.slack = slack(i)
		if _, err := l.agree(from, record, s, got, gotErr, keys); err == nil {
			return nil
		} else if first == nil {
			first = err
		}
	}
	return first
}

// stall delays the server before each command in turn, until one part of the room has ended, or
// all.
func (l *lens) stall(from *situation, s step) {
	_, _ = l.take(s, from.keys, from.now, from.least)
	calls := len(l.calls)
	jumps := []int64{100_000, 20_000_000}
	if at := from.next(); at > 0 {
		jumps = append(jumps, at*1000-from.now, (at+1)*1000-from.now)
	}
	defer l.calm()
	for i := range calls {
		for _, jump := range jumps {
			l.doing = fmt.Sprintf("%s held up for %d µs before call %d", s.name, jump, i)
			l.stallAt(from, s, i, jump)
		}
	}
}

func (l *lens) stallAt(from *situation, s step, at int, jump int64) {
	l.calm()
	count := 0
	l.server.Before = func(*microscope.Call) microscope.Error {
		if count == at {
			l.server.Now += jump
		}
		count++
		return ""
	}
	got, gotErr := l.take(s, from.keys, from.now, from.least)
	l.server.Before = nil
	l.lawful()
	// The answer must be the rule's for some moment of the call.
	moments := []int64{from.now, from.now + jump}
	if got.Clock > 0 {
		moments = append(moments, got.Clock.Microseconds())
	}
	var wanted []string
	for _, now := range moments {
		for _, record := range from.readings() {
			want, _, wantErr := s.rule(record, now)
			if (gotErr != nil) == (wantErr != nil) && want.State == got.State {
				l.covered(from, s, got)
				return
			}
			wanted = append(wanted, fmt.Sprint(want.State, " ", wantErr))
		}
	}
	l.must(fmt.Errorf("answers %v (%w), want one of %q", got.State, gotErr, wanted))
}

// covered checks that the key that excludes other clients does not end before the granted lease
// and the leases before it.
func (l *lens) covered(from *situation, s step, got driver.Reply) {
	at, until := l.server.Keys[lensPrefix+lensKey].At, from.now/1000+lensTTL.Milliseconds()
	l.never(got.State == driver.Granted && l.server.Now/1000 < until && at < until,
		"granted for %v, and the holder key ends %d ms after it was asked for", lensTTL, at-from.now/1000)
	for _, p := range from.record.Inside {
		l.never(p.ID != s.id && p.Expiry > l.server.Now/1000 && at < p.Expiry && !strings.HasPrefix(s.name, "break"),
			"%s is inside for %d ms after the holder key ends", p.ID, p.Expiry-at)
	}
}

// damage removes each of the keys in turn, and each part of a key, or replaces it, and takes the
// step. No script fails half-way, every key ends, refusals are refusals of foreign data, and no
// lock is granted together with a lease that the holder key still contains.
func (l *lens) damage(from *situation, s step) {
	for what, keys := range damaged(from.keys) {
		l.doing = s.name + " " + what
		l.damageBy(from, s, keys)
	}
}

func damaged(keys microscope.Keys) map[string]microscope.Keys {
	all := make(map[string]microscope.Keys)
	change := func(what string, f func(microscope.Keys)) {
		c := keys.Clone()
		f(c)
		all[what] = c
	}
	h := lensPrefix + lensKey
	r, z := string(appendSide(nil, []byte(h), recordKey)), string(appendSide(nil, []byte(h), sortedKey))
	names := slices.Sorted(maps.Keys(keys))
	for _, name := range names {
		change(fmt.Sprintf("without %q", name), func(k microscope.Keys) { delete(k, name) })
		change(fmt.Sprintf("with nothing but %q", name), func(k microscope.Keys) {
			clear(k)
			k[name] = keys[name]
		})
		v := keys[name]
		if v.Text != nil {
			change(fmt.Sprintf("with another text as %q", name), func(k microscope.Keys) { k[name] = textUntil("nonsense", v.At) })
		}
		for field := range v.Hash {
			change(fmt.Sprintf("without %q of the record", field), func(k microscope.Keys) { k[name] = without(v, field) })
			change(fmt.Sprintf("with another %q of the record", field), func(k microscope.Keys) { k[name] = with(v, field, "nonsense") })
		}
		for i, m := range v.Sorted {
			change(fmt.Sprintf("without %q of the queue", m.Name), func(k microscope.Keys) {
				v := v
				v.Sorted = slices.Delete(slices.Clone(v.Sorted), i, i+1)
				k[name] = v
				if len(v.Sorted) == 0 {
					delete(k, name)
				}
			})
		}
	}
	for _, name := range []string{h, r, z, lensPrefix + counterKey} {
		other := microscope.Value{List: true, At: keys[name].At}
		change(fmt.Sprintf("with a list as %q", name), func(k microscope.Keys) {
			if other.At == 0 {
				other.At = lensStart/1000 + 1_000_000
			}
			k[name] = other
		})
	}
	return all
}

func without(v microscope.Value, field string) microscope.Value {
	v.Hash = maps.Clone(v.Hash)
	delete(v.Hash, field)
	if len(v.Hash) == 0 {
		v.Hash = nil
	}
	return v
}

func with(v microscope.Value, field, text string) microscope.Value {
	v.Hash = maps.Clone(v.Hash)
	v.Hash[field] = text
	return v
}

func (l *lens) damageBy(from *situation, s step, keys microscope.Keys) {
	for name, v := range keys {
		if v.Type() == "none" {
			delete(keys, name)
		}
	}
	got, gotErr := l.take(s, keys, from.now, from.least)
	after := l.server.Live()
	l.lawful()
	l.never(gotErr != nil && !errors.Is(gotErr, driver.ErrMismatch) && !errors.Is(gotErr, driver.ErrInvalid), "answers %w", gotErr)
	h := keys[lensPrefix+lensKey]
	inside := slices.ContainsFunc(from.record.Inside, func(p room.Party) bool { return p.ID == s.id })
	entered := !inside && gotErr == nil && got.State == driver.Granted && got.Holds == 1
	if left := h.At - from.now/1000; entered && h.Text != nil && left > 0 {
		others := slices.ContainsFunc(from.record.Inside, func(p room.Party) bool {
			return p.Mode == driver.Exclusive && p.Expiry > from.now/1000
		})
		l.never(others, "granted for token %d, while the holder key keeps others out for %d ms", got.Token, left)
	}
	if k := keptIn(after); len(k.scalars) == 17 && (k.scalar(6) < k.scalar(7) || k.scalar(6) == k.scalar(7) && (k.scalar(8) != 0 || k.scalars[16] != "0")) {
		l.must(fmt.Errorf("places are taken without a sharer:\n%s", show(after)))
	}
	for name, v := range after {
		l.never(v.At > from.now/1000+(4*time.Hour).Milliseconds(), "the key %q ends at %d", name, v.At)
	}
	l.soon(got)
	l.never(entered && got.Token < min(from.floor, from.now), "token %d after %d", got.Token, from.floor)
	l.never(deref(keptIn(after).r.Text) == "0", "a counter is kept that has counted nothing")
	l.server.Keys = after
	_, err := l.store.inspect(context.Background(), lensKey)
	l.never(err != nil && !errors.Is(err, driver.ErrMismatch), "inspect afterwards: %w", err)
	l.lawful()
}

// soon checks the time after which a waiter is to ask again: it is at most the longest time that
// the worlds wait.
func (l *lens) soon(got driver.Reply) {
	const longest = lensTTL + lensDelay + time.Millisecond
	told := []time.Duration{got.RetryAfter}
	for _, m := range l.heard {
		if hint, ok := parseHint(lensPrefix, m.Text); ok {
			told = append(told, hint.RetryAfter)
		}
	}
	for _, after := range told {
		l.never(after < 0 || after > longest, "says to ask again in %v", after)
	}
}

// show prints keys.
func show(keys microscope.Keys) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		v := keys[name]
		fmt.Fprintf(&b, "  %q until %d: ", name, v.At)
		switch {
		case v.Text != nil:
			fmt.Fprintf(&b, "%q\n", *v.Text)
		case v.Hash != nil:
			fmt.Fprintf(&b, "%q\n", v.Hash)
		default:
			fmt.Fprintf(&b, "%v\n", v.Sorted)
		}
	}
	return b.String()
}

func TestMicroscope_ScriptsAreTheRuleAndFailNowhereInTheirMiddle(t *testing.T) {
	skip.Racing(t, "one goroutine runs the interpreter")
	b := normal()
	want := readCommands(t)
	defer func() {
		if *microscopeUpdate {
			writeCommands(t, want)
		}
	}()
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			l := newLens(lensStart)
			defer l.server.Close()
			start := time.Now()
			seen, err := l.explore(w, b)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d situations to depth %d; %d runs of a script; %v", seen.situations, seen.depth, l.runs, time.Since(start).Round(time.Millisecond))
			if *microscopeUpdate {
				want[w.name] = seen.commands
			}
			if took := want[w.name]; *microscopeStates+*microscopeFaults == 0 && seen.commands != took {
				t.Errorf("its steps take %d commands, and took %d: is a stage that only saves time of no use any more, or do they take more? If that is meant, run this with -microscope.update",
					seen.commands, took)
			}
		})
	}
}

// commandsFile lists how many commands the steps of each world take, from as many situations as
// -short tries, and the name of the world. If a stage of a script no longer settles
// any call, a later stage does, and only this file shows it.
const commandsFile = "testdata/commands.txt"

func readCommands(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(commandsFile)
	if err != nil && !*microscopeUpdate {
		t.Fatal(err)
	}
	all := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		count, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if all[name], err = strconv.Atoi(count); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func writeCommands(t *testing.T, all map[string]int) {
	t.Helper()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintln(&b, all[name], name)
	}
	if err := os.WriteFile(commandsFile, []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}
