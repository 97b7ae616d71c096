package redisroom

import (
	"embed"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/skip"
)

//go:embed lua
var luaFiles embed.FS

// luaText is the text of a file below lua, as it stands in the scripts.
func luaText(t *testing.T, file string) string {
	t.Helper()
	text, err := luaFiles.ReadFile(path.Join("lua", file))
	if err != nil {
		t.Fatal(err)
	}
	return includes.Replace(string(text))
}

// fault is a mistake in a script, of those that were made, or nearly.
type fault struct {
	name, file string
	changes    []string // what is there and what was, in turn
}

// few are bounds within which the most is found.
var few = bounds{states: 30, failed: 3, damaged: 2}

var faults = []fault{
	{"the end of a lone holder's lease is read after the clock, and that of the record is relative", "room/2_record.lua", []string{
		"local at = call('PEXPIRETIME', H)", "local at = call('PTTL', H) if at >= 0 then at = at + ms end",
		"call('SET', H, '*', 'PXAT', exp + 1)", "call('SET', H, '*', 'PX', exp - ms)",
		"if at <= ms then", "if at < ms then",
	}},
	{"the end of a lone holder's lease is put together from two readings of the clock", "room/2_record.lua", []string{
		"local at = call('PEXPIRETIME', H)", "local at = call('PTTL', H) if at >= 0 then at = at + ms end",
	}},
	{"a record without its queue is taken for one", "room/2_record.lua", []string{
		"isrec = load_record(s) and anchor and true or false", "isrec = load_record(s) and true or false",
	}},
	{"a release trusts that the queue is there", "release/2_common.lua", []string{
		"if not inside[2] or inside[2] + BAND <= ms or", "if inside[2] + BAND <= ms or",
	}},
	{"the queue is emptied before somebody enters", "release/2_common.lua", []string{
		"  if came[1] then call('ZADD', Z, unpack(came)) end\n", "",
		"  call('ZREM', Z, unpack(gone)) -- after it, lest Z be empty, and gone with its end, in between\n",
		"  call('ZREM', Z, '#', unpack(gone)) call('ZADD', Z, 2 ^ 49, '#') if came[1] then call('ZADD', Z, unpack(came)) end\n",
	}},
	{"the clock is asked where it may fail, after the first write", "acquire/1_free.lua", []string{
		"local t = pcall('TIME')", "local t = call('TIME')",
	}},
	{"what the free path has taken stays when there is a record", "acquire/1_free.lua", []string{
		"    call('DEL', h)\n    if refused", "    if refused",
	}},
	{"a counter dies with the lease beside it", "room/life.lua", []string{
		"+ math.max(0, math.floor(tok / 1000) - ms)", "",
	}},
	{"a counter of a record never ends", "room/2_record.lua", []string{
		"  call('PEXPIREAT', R, rexp)\n", "",
	}},
	{"the first sharer's queue never ends", "acquire/2_common.lua", []string{
		"    call('PEXPIREAT', Z, rexp)\n", "",
	}},
	{"tokens are counted without the clock", "room/3_rule.lua", []string{
		"tok = math.max(tok + 1, now, p.min + 1)", "tok = math.max(tok + 1, p.min + 1)",
	}},
	{"a downgrade that comes late locks", "acquire/3_general.lua", []string{
		"if not out and how == 'downgrade' then", "if false then",
	}},
	{"an owner who reads waits for itself", "acquire/3_general.lua", []string{
		"err = check() or at_odds()", "err = check()",
	}},
	{"an owner's entry is trusted to be there", "acquire/3_general.lua", []string{
		"      local p = party(sub(ids[i], 2))\n      own = own or p and p.ident == who\n", "      own = own or party(sub(ids[i], 2)).ident == who\n",
	}},
	{"a visit that gives up ends what another was told", "release/3_general.lua", []string{
		"if visit ~= '-' and not below(visit_of(p.meta), visit) then return reply(BUSY) end", "",
	}},
	{"a renewal does not ask whose lease it is", "renew/1_free.lua", []string{
		"string.find(held, ARGV[a], 1, true) == 1", "#held > 1",
	}},
	{"a renewal shortens a lease", "room/3_rule.lua", []string{
		"call('PEXPIREAT', H, ms + ttl, 'GT')", "call('PEXPIREAT', H, ms + ttl - 1)",
	}},
	{"a release ends anybody's lease", "release/1_free.lua", []string{
		"if held == id or held and held:sub(1, #id) == id then", "if held and held ~= '*' then",
	}},
	{"what is forbidden is forgotten", "release/3_general.lua", []string{
		"mark('+' .. id, ms + forbid)", "mark('+' .. id, ms)",
	}},
	{"readers enter beside a writer", "acquire/2_common.lua", []string{
		"local room = mode == 's' and nx == '0' and", "local room = mode == 's' and",
	}},
	{"a dead head of the queue is not called", "acquire/2_common.lua", []string{
		"if room and hnotify ~= '-' then", "if false then",
	}},
	{"a release lets no sharer in beside another", "release/2_common.lua", []string{
		"if nx == 1 or side == 'x' and n > 0", "if nx ~= 1 or side == 'x' and n > 0",
	}},
	{"a sharer's counter dies before the clock has passed it", "acquire/2_common.lua", []string{
		"math.floor(tok / 1000) - ms)", "math.floor(tok / 1001) - ms)",
	}},
	{"a hand-over that lapses takes a place that was taken after it", "release/2_common.lua", []string{
		"'u' .. terms .. seq .. further", "'u' .. terms .. '30000' .. further",
	}},
	{"one by the general path does", "room/3_rule.lua", []string{
		"      p.before = seq\n", "",
	}},
	{"a call by the general path that is missed does", "room/3_rule.lua", []string{
		"p.token, p.before = ms, seq", "p.token, p.before = ms, 30000",
	}},
	{"a call that is missed takes a place that was taken after it", "acquire/2_common.lua", []string{
		"fmt('%%1%d%%2%d', seq, ms)", "fmt('%%1%d%%2%d', 30000, ms)",
	}},
	{"a process counts as dead that was heard of since", "room/3_rule.lua", []string{
		"call('ZADD', Z, ms + SUSPICION, '@' .. notify)", "",
	}},
	{"one place too many", "room/3_rule.lua", []string{
		"used + p.weight <= lim)", "used + p.weight <= lim + 1)",
	}},
}

// TestMicroscope_FindsFaults puts back mistakes that were made. Nothing of the microscope
// is about any of them.
func TestMicroscope_FindsFaults(t *testing.T) {
	skip.Nightly(t, "it tests the microscope")
	some := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)).Perm(len(faults))
	switch {
	case skip.Race:
		some = some[:1]
	case *microscopeStates == 0:
		some = some[:3] // make microscope tries all
	}
	for _, i := range some {
		f := faults[i]
		t.Run(f.name, func(t *testing.T) {
			text := luaText(t, f.file)
			changed := text
			for i := 0; i < len(f.changes); i += 2 {
				if !strings.Contains(changed, f.changes[i]) {
					t.Fatalf("%s has no %q", f.file, f.changes[i])
				}
				changed = strings.ReplaceAll(changed, f.changes[i], f.changes[i+1])
			}
			runs, took, err := exploreChanged(text, changed, few)
			if err == nil {
				runs, took, err = exploreChanged(text, changed, bounds{states: 120, failed: 8, damaged: 8})
			}
			if err == nil {
				t.Fatalf("not found in %d runs of a script, %v", runs, took)
			}
			first, _, _ := strings.Cut(err.Error(), "\n")
			t.Logf("found after %d runs of a script, %v: %s", runs, took, first)
		})
	}
}

// exploreChanged explores with scripts in which a text is another, until something is
// wrong.
func exploreChanged(text, changed string, b bounds) (runs int, took time.Duration, err error) {
	start := time.Now()
	for _, w := range worlds {
		l := newLens(lensStart)
		for sha, whole := range l.texts {
			l.texts[sha] = strings.ReplaceAll(whole, text, changed)
		}
		_, err = l.explore(w, b)
		runs += l.runs
		l.server.Close()
		if err != nil {
			break
		}
	}
	return runs, time.Since(start).Round(time.Millisecond), err
}
