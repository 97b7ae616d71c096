package redisroom

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// later stands before a script and has the server's clock be so many seconds
// further than the one by which its keys expire, as it is when the server is held
// up between the beginning of a script and its look at the clock.
func later(seconds int) string {
	return fmt.Sprintf(`
local redis = setmetatable({ call = function(name, ...)
  if name ~= 'TIME' then return redis.call(name, ...) end
  local t = redis.call(name)
  return { t[1] + %d, t[2] }
end }, { __index = redis })
`, seconds)
}

// bench runs scripts on rooms that are made, cut and looked at.
type bench struct {
	t      *testing.T
	client *redis.Client
	prefix string // of the room at hand
	made   int
}

// setting is what happened in a room before it was cut.
type setting struct {
	name string
	make func(b *bench)
}

func (b *bench) h() string { return b.prefix + "k" }
func (b *bench) r() string { return string(appendSide(nil, []byte(b.h()), recordKey)) }
func (b *bench) z() string { return string(appendSide(nil, []byte(b.h()), sortedKey)) }

// run runs a command of one of the scripts.
func (b *bench) run(prologue string, sc *script, cmd []string) (any, error) {
	args := make([]any, len(cmd))
	for i, word := range cmd {
		args[i] = word
	}
	text := prologue + sc.plain().text
	args[0], args[1] = evalsha, newForm(text).sha
	reply, err := b.client.Do(context.Background(), args...).Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = eval, text
		return b.client.Do(context.Background(), args...).Result()
	}
	return reply, err
}

// call is run with what a call makes.
func (b *bench) call(call func(*bench) (*script, []string)) (any, error) {
	sc, cmd := call(b)
	return b.run("", sc, cmd)
}

// must runs a command that has to succeed.
func (b *bench) must(sc *script, cmd []string) {
	b.t.Helper()
	if _, err := b.run("", sc, cmd); err != nil && !errors.Is(err, redis.Nil) {
		b.t.Fatal(err)
	}
}

// ask is a request of the room at hand.
func (b *bench) ask(id string, change func(*driver.Request)) (*script, []string) {
	req := driver.Request{Key: "k", ID: id, Owner: id, TTL: 5 * time.Second, ConfirmWindow: time.Second, Since: time.UnixMilli(1)}
	if change != nil {
		change(&req)
	}
	sc := acquireScript
	if req.SingleUseID {
		sc = onceScript
	}
	return sc, acquireCommand(sc.plain(), b.prefix, &req, anyAge, plainly).take()
}

func (b *bench) enter(id string, change func(*driver.Request)) { b.must(b.ask(id, change)) }

func (b *bench) leave(ref driver.Ref) (*script, []string) {
	ref.Key = "k"
	return releaseScript, releaseCommand(releaseScript.plain(), b.prefix, &ref).take()
}

func shared(req *driver.Request)   { req.Mode, req.Limit, req.LockDelay = driver.Shared, 3, time.Second }
func queueing(req *driver.Request) { req.TicketTTL, req.HintAddress = 5*time.Second, "ears" }
func both(req *driver.Request)     { shared(req); queueing(req) }

var settings = []setting{
	{"free", func(*bench) {}},
	{"released", func(b *bench) { b.enter("a", nil); b.must(b.leave(driver.Ref{ID: "a"})) }},
	{"one holder", func(b *bench) { b.enter("a", nil) }},
	{"a waiter", func(b *bench) { b.enter("a", nil); b.enter("b", queueing); b.enter("c", queueing) }},
	{"sharers", func(b *bench) { b.enter("a", shared); b.enter("b", shared) }},
	{"sharers and a writer who waits", func(b *bench) { b.enter("a", shared); b.enter("b", shared); b.enter("c", queueing); b.enter("d", both) }},
	{"a hand-over", func(b *bench) {
		b.enter("x", nil)
		b.enter("a", queueing)
		b.enter("b", queueing)
		b.must(b.leave(driver.Ref{ID: "x"}))
	}},
	{"kept closed", func(b *bench) {
		b.enter("x", nil)
		b.enter("a", queueing)
		b.must(b.leave(driver.Ref{ID: "x", KeepClosed: 3 * time.Second}))
	}},
	{"an id that is forbidden", func(b *bench) { b.enter("a", nil); b.must(b.leave(driver.Ref{ID: "z", RejectIDFor: time.Minute})) }},
	{"a broken lease", func(b *bench) {
		b.enter("a", nil)
		b.enter("b", nil)
		b.must(breakScript, roomCommand(breakScript.plain(), b.prefix, "k", "a", "why").take())
	}},
	{"somebody else's lock", func(b *bench) { b.client.Set(context.Background(), b.h(), "theirs", 5*time.Second) }},
}

// cuts are what eviction, an operator, or a script that was cut in its middle can
// leave of a room.
var cuts = map[string]func(b *bench, ctx context.Context){
	"nothing":    func(*bench, context.Context) {},
	"H":          func(b *bench, ctx context.Context) { b.client.Del(ctx, b.h()) },
	"R":          func(b *bench, ctx context.Context) { b.client.Del(ctx, b.r()) },
	"Z":          func(b *bench, ctx context.Context) { b.client.Del(ctx, b.z()) },
	"H and R":    func(b *bench, ctx context.Context) { b.client.Del(ctx, b.h(), b.r()) },
	"H and Z":    func(b *bench, ctx context.Context) { b.client.Del(ctx, b.h(), b.z()) },
	"R and Z":    func(b *bench, ctx context.Context) { b.client.Del(ctx, b.r(), b.z()) },
	"the anchor": func(b *bench, ctx context.Context) { b.client.ZRem(ctx, b.z(), "#") },
	"all scalars": func(b *bench, ctx context.Context) {
		if b.client.Type(ctx, b.r()).Val() == "hash" {
			b.client.HSet(ctx, b.r(), "#", "")
		}
	},
	"a and b in R": func(b *bench, ctx context.Context) { b.client.HDel(ctx, b.r(), "a", "b") },
	"a and b in Z": func(b *bench, ctx context.Context) { b.client.ZRem(ctx, b.z(), "ia", "ib", "ta", "qb") },
	"half of it, without an end": func(b *bench, ctx context.Context) {
		b.client.Del(ctx, b.r(), b.z())
		b.client.HSet(ctx, b.r(), "#", "")
		b.client.ZAdd(ctx, b.z(), redis.Z{Score: 1 << 49, Member: "#"})
	},
	"R is a list":        func(b *bench, ctx context.Context) { b.replace(b.r()) },
	"Z is a list":        func(b *bench, ctx context.Context) { b.replace(b.z()) },
	"R is no number":     func(b *bench, ctx context.Context) { b.client.Set(ctx, b.r(), "soup", time.Minute) },
	"an id is a list":    func(b *bench, ctx context.Context) { b.replace(string(appendSpent(nil, []byte(b.h()), "a"))) },
	"the mark is soup":   func(b *bench, ctx context.Context) { b.client.Set(ctx, b.prefix+markKey, "soup", time.Minute) },
	"the mark is a list": func(b *bench, ctx context.Context) { b.replace(b.prefix + markKey) },
}

func (b *bench) replace(key string) {
	ctx := context.Background()
	b.client.Del(ctx, key)
	b.client.RPush(ctx, key, "theirs")
	b.client.Expire(ctx, key, time.Minute)
}

// calls are the calls of all scripts, in all their forms.
var calls = map[string]func(b *bench) (*script, []string){
	"try": func(b *bench) (*script, []string) { return b.ask("n", nil) },
	"try at once": func(b *bench) (*script, []string) {
		return b.ask("n", func(r *driver.Request) { r.SingleUseID = true })
	},
	"try, guarded": func(b *bench) (*script, []string) { return b.ask("n", func(r *driver.Request) { r.Guard = true }) },
	"wait":         func(b *bench) (*script, []string) { return b.ask("n", queueing) },
	"wait, delayed": func(b *bench) (*script, []string) {
		return b.ask("n", func(r *driver.Request) { queueing(r); r.LockDelay = 1e9 })
	},
	"share": func(b *bench) (*script, []string) {
		return b.ask("n", func(r *driver.Request) { r.Mode, r.Limit = driver.Shared, 3 })
	},
	"share, wait": func(b *bench) (*script, []string) { return b.ask("n", both) },
	"share, another limit": func(b *bench) (*script, []string) {
		return b.ask("n", func(r *driver.Request) { r.Mode, r.Limit = driver.Shared, 2 })
	},
	"again":        func(b *bench) (*script, []string) { return b.ask("a", nil) },
	"again, moved": func(b *bench) (*script, []string) { return b.ask("a", queueing) },
	"again, once": func(b *bench) (*script, []string) {
		return b.ask("a", func(r *driver.Request) { r.SingleUseID = true })
	},
	"ticket again": func(b *bench) (*script, []string) { return b.ask("b", queueing) },
	"downgrade":    func(b *bench) (*script, []string) { return b.ask("a", shared) },
	"resize": func(b *bench) (*script, []string) {
		return b.ask("n", func(r *driver.Request) { r.Mode, r.Limit, r.Resize = driver.Shared, 2, true })
	},
	"token":            func(b *bench) (*script, []string) { return b.ask("n", func(r *driver.Request) { r.MinToken = 5 }) },
	"renew":            func(b *bench) (*script, []string) { return b.renewal(driver.Ref{ID: "a"}) },
	"renew, visit":     func(b *bench) (*script, []string) { return b.renewal(driver.Ref{ID: "a", Visit: "w"}) },
	"renew a ticket":   func(b *bench) (*script, []string) { return b.renewal(driver.Ref{ID: "c", HintAddress: "ears"}) },
	"renew a stranger": func(b *bench) (*script, []string) { return b.renewal(driver.Ref{ID: "n"}) },
	"raise": func(b *bench) (*script, []string) {
		return b.renewal(driver.Ref{ID: "a", Token: time.Now().UnixMicro()})
	},
	"renew alone":       func(b *bench) (*script, []string) { return b.renewal(driver.Ref{ID: "a", Uncontended: true}) },
	"release":           func(b *bench) (*script, []string) { return b.leave(driver.Ref{ID: "a"}) },
	"release a ticket":  func(b *bench) (*script, []string) { return b.leave(driver.Ref{ID: "b"}) },
	"release, stranger": func(b *bench) (*script, []string) { return b.leave(driver.Ref{ID: "n"}) },
	"release, keep":     func(b *bench) (*script, []string) { return b.leave(driver.Ref{ID: "a", KeepClosed: time.Second}) },
	"release, forbid":   func(b *bench) (*script, []string) { return b.leave(driver.Ref{ID: "a", RejectIDFor: time.Minute}) },
	"release, once": func(b *bench) (*script, []string) {
		return b.leave(driver.Ref{ID: "a", RejectIDFor: time.Minute, SingleUseID: true})
	},
	"release, once, keep": func(b *bench) (*script, []string) {
		return b.leave(driver.Ref{ID: "a", RejectIDFor: time.Minute, SingleUseID: true, KeepClosed: time.Second})
	},
	"release, moved": func(b *bench) (*script, []string) { return b.leave(driver.Ref{ID: "a", HintAddress: "other"}) },
	"alone": func(b *bench) (*script, []string) {
		return uncontendedScript, b.store().uncontendedCommand(&driver.Ref{Key: "k", ID: "a"}, false).take()
	},
	"alone, once": func(b *bench) (*script, []string) {
		return uncontendedScript, b.store().uncontendedCommand(&driver.Ref{Key: "k", ID: "a", RejectIDFor: time.Minute, SingleUseID: true}, false).take()
	},
	"alone, renew": func(b *bench) (*script, []string) {
		return uncontendedScript, b.store().uncontendedCommand(&driver.Ref{Key: "k", ID: "a", TTL: time.Second}, true).take()
	},
	"alone, renew, visit": func(b *bench) (*script, []string) {
		return uncontendedScript, b.store().uncontendedCommand(&driver.Ref{Key: "k", ID: "a", TTL: time.Second, Visit: "w"}, true).take()
	},
	"break": func(b *bench) (*script, []string) {
		return breakScript, roomCommand(breakScript.plain(), b.prefix, "k", "a", "why").take()
	},
	"break a ticket": func(b *bench) (*script, []string) {
		return breakScript, roomCommand(breakScript.plain(), b.prefix, "k", "b", "why").take()
	},
	"inspect": func(b *bench) (*script, []string) {
		return inspectScript, roomCommand(inspectScript.plain(), b.prefix, "k").take()
	},
	"list": func(b *bench) (*script, []string) {
		return listScript, roomCommand(listScript.plain(), b.prefix, "k", "1").take()
	},
	"look at the mark": func(b *bench) (*script, []string) { return markScript, []string{"", "", "1", b.prefix + markKey} },
}

func (b *bench) renewal(ref driver.Ref) (*script, []string) {
	ref.Key, ref.TTL, ref.TicketTTL = "k", 5*time.Second, 5*time.Second
	g := &renewal{which: []int{0}, script: renewScript}
	if ref.Uncontended {
		g.script = renewUncontended
	}
	return g.script, b.store().renewCommand(g, []driver.Ref{ref}, anyAge).take()
}

func (b *bench) store() *Store {
	s := &Store{prefix: b.prefix}
	s.plain.Store(true)
	return s
}

// cut makes a room, cuts it, calls a script, and asserts that the script came to
// its end, that whatever is there ends by itself, and that the room can be used
// and looked at afterwards.
func (b *bench) cut(what, prologue string, make, cut func(), call func(*bench) (*script, []string)) {
	b.t.Helper()
	b.made++
	b.prefix = fmt.Sprintf("%d:", b.made)
	make()
	cut()
	b.judge(what, prologue, call)
	for _, next := range []string{"inspect", "list", "wait", "try", "release"} {
		b.judge(what+", then "+next, "", calls[next])
	}
	for _, key := range b.lasting() {
		b.t.Errorf("%s: %q never ends, though the room was used", what, key)
	}
}

func (b *bench) judge(what, prologue string, call func(*bench) (*script, []string)) {
	b.t.Helper()
	before := b.lasting()
	sc, cmd := call(b)
	reply, err := b.run(prologue, sc, cmd)
	replies, _ := reply.([]any)
	for _, r := range replies {
		if e, ok := r.(error); ok {
			err = e
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) && !isRefusalOfOurs(err) {
		b.t.Errorf("%s: %v", what, err)
	}
	for _, key := range b.lasting() {
		if !slices.Contains(before, key) {
			b.t.Errorf("%s: %q never ends", what, key)
		}
	}
}

// lasting returns the keys of the room that do not end by themselves.
func (b *bench) lasting() (keys []string) {
	for _, key := range []string{b.h(), b.r(), b.z()} {
		if b.client.PTTL(context.Background(), key).Val() == -1 {
			keys = append(keys, key)
		}
	}
	return keys
}

// isRefusalOfOurs reports whether a script means the error that it returns.
func isRefusalOfOurs(err error) bool {
	for _, word := range []string{"LHFOREIGN", "LHMISMATCH", "LHAMNESIA", "LHINVALID", "WRONGTYPE"} {
		if strings.HasPrefix(err.Error(), word) {
			return true
		}
	}
	return false
}

var sampleSeed = flag.Uint64("sample.seed", 0, "draw the situations that are played with -short or the race detector from this one")

// sampled returns which situations are played: with -short or the race detector, which has
// nothing to find in them and slows them down, one in so many, otherwise all.
func sampled(t *testing.T, oneIn uint64) func(what string) bool {
	t.Helper()
	if !testing.Short() && !skip.Race {
		return func(string) bool { return true }
	}
	seed := *sampleSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("one situation in %d is played, drawn from -sample.seed=%d; make test-long plays all, without the race detector", oneIn, seed)
	return func(what string) bool {
		name := fnv.New64a()
		_, _ = name.Write([]byte(what)) // never fails
		return rand.NewPCG(seed, name.Sum64()).Uint64()%oneIn == 0
	}
}

// TestScripts_HR_A1_EndWhateverIsMissing runs every script on every room with
// every key, or part of one, missing.
func TestScripts_HR_A1_EndWhateverIsMissing(t *testing.T) {
	t.Parallel()
	b, played := &bench{t: t, client: redistest.Start(t).Client()}, sampled(t, 40)
	for _, s := range settings {
		for missing, cut := range cuts {
			for name, call := range calls {
				what := fmt.Sprintf("%s, without %s: %s", s.name, missing, name)
				if !played(what) {
					continue
				}
				b.cut(what, "", func() { s.make(b) }, func() { cut(b, context.Background()) }, call)
			}
		}
		if b.client.FlushAll(context.Background()); t.Failed() {
			return
		}
	}
}

// TestScripts_HR_A1_LookAtTheClockAfterALeaseIsOver runs every script on every room
// when the server is held up between its beginning and its look at the clock, and
// leases and tickets have run out meanwhile.
func TestScripts_HR_A1_LookAtTheClockAfterALeaseIsOver(t *testing.T) {
	t.Parallel()
	b, played := &bench{t: t, client: redistest.Start(t).Client()}, sampled(t, 20)
	for _, s := range settings {
		for name, call := range calls {
			for _, seconds := range []int{2, 30, 4000} {
				what := fmt.Sprintf("%s, %d s later: %s", s.name, seconds, name)
				if !played(what) {
					continue
				}
				b.cut(what, later(seconds), func() { s.make(b) }, func() {}, call)
			}
		}
	}
}

// TestScripts_HR_A1_LetNobodyInBesideThoseWhoseRecordIsLost loses parts of a room
// whose holders do not know yet.
func TestScripts_HR_A1_LetNobodyInBesideThoseWhoseRecordIsLost(t *testing.T) {
	b := &bench{t: t, client: redistest.Start(t).Client()}
	for _, s := range settings {
		if !slices.Contains([]string{"a waiter", "sharers", "a hand-over"}, s.name) {
			continue
		}
		for _, missing := range []string{"R", "Z", "R and Z", "all scalars", "half of it, without an end"} {
			for _, name := range []string{"try", "wait", "share", "try at once", "token"} {
				b.made++
				b.prefix = fmt.Sprintf("%d:", b.made)
				s.make(b)
				cuts[missing](b, context.Background())
				reply, err := b.call(calls[name])
				fields, ok := reply.([]any)
				if err != nil || !ok || fields[0] == int64(driver.Granted) {
					t.Errorf("%s, without %s: %s: %v, %v", s.name, missing, name, reply, err)
				}
			}
		}
	}
}
