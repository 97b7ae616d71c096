package redisroom

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// commonCase is a case that the second stage of a script settles.
type commonCase struct {
	name string
	make func(b *bench)
	call func(b *bench) (*script, []string)
}

// bench runs scripts on rooms of a server.
type bench struct {
	t      *testing.T
	client *redis.Client
	prefix string // of the room at hand
	made   int
}

func (b *bench) store() *Store { return New(Config{Prefix: b.prefix}) }

// must runs a command that has to succeed.
func (b *bench) must(sc *script, cmd []string) {
	b.t.Helper()
	args := make([]any, len(cmd))
	for i, word := range cmd {
		args[i] = word
	}
	args[0], args[1] = eval, sc.plain().text
	if err := b.client.Do(context.Background(), args...).Err(); err != nil && !errors.Is(err, redis.Nil) {
		b.t.Fatal(err)
	}
}

func (b *bench) ask(id string, change func(*driver.Request)) (*script, []string) {
	req := driver.Request{Key: "k", ID: id, Owner: id, TTL: 5 * time.Second, ConfirmWindow: time.Second, Since: time.UnixMilli(1)}
	if change != nil {
		change(&req)
	}
	return acquireScript, b.store().acquireCommand(acquireScript.plain(), &req, anyToken, plainly).take()
}

func (b *bench) enter(id string, change func(*driver.Request)) { b.must(b.ask(id, change)) }

func (b *bench) renewal(id string) (*script, []string) {
	ref := driver.Ref{Key: "k", ID: id, TTL: 5 * time.Second, TicketTTL: 5 * time.Second}
	return renewScript, b.store().renewRoomsCommand(renewScript.plain(), []driver.Ref{ref}, []int{0}).take()
}

func queueing(req *driver.Request) { req.TicketTTL, req.HintAddress = 5*time.Second, "ears" }

func reader(req *driver.Request)         { req.Mode = driver.Shared }
func counted(req *driver.Request)        { req.Mode, req.Limit = driver.Shared, 3 }
func queueingReader(req *driver.Request) { reader(req); queueing(req) }
func queueingCounted(req *driver.Request) {
	counted(req)
	queueing(req)
}

func (b *bench) enterAll(change func(*driver.Request), ids ...string) {
	for _, id := range ids {
		b.enter(id, change)
	}
}

func asks(change func(*driver.Request)) func(*bench) (*script, []string) {
	return func(b *bench) (*script, []string) { return b.ask("n", change) }
}

func leaves(b *bench) (*script, []string) {
	return releaseScript, b.store().releaseCommand(releaseScript.plain(), &driver.Ref{Key: "k", ID: "a"}).take()
}

func contended(b *bench) {
	b.enter("a", nil)
	b.enterAll(queueing, "b", "c", "d")
}

func full(b *bench) { b.enterAll(counted, "a", "b", "c") }

var commonCases = []commonCase{
	{"try refused by a lone holder", func(b *bench) { b.enter("a", nil) }, asks(nil)},
	{"try refused, others wait", contended, asks(nil)},
	{"ticket behind others", contended, asks(queueing)},
	{"first sharer", func(b *bench) { b.enter("a", nil); b.must(leaves(b)) }, asks(reader)},
	{"further sharer", func(b *bench) { b.enter("a", counted) }, asks(counted)},
	{"sharer refused by the limit", full, asks(counted)},
	{"ticket of a sharer", func(b *bench) { full(b); b.enter("d", queueingCounted) }, asks(queueingCounted)},
	{"reader behind a writer that waits", func(b *bench) {
		b.enterAll(reader, "a", "b")
		b.enter("c", queueing)
		b.enter("d", queueingReader) // has the writer called
	}, asks(queueingReader)},
	{"reader that has a writer called", func(b *bench) { b.enterAll(reader, "a", "b"); b.enter("c", queueing) }, asks(queueingReader)},
	{"leave that hands on", contended, leaves},
	{"leave that hands on to ten readers", func(b *bench) {
		b.enter("a", nil)
		b.enterAll(queueingReader, strings.Fields("0 1 2 3 4 5 6 7 8 9")...)
	}, leaves},
	{"leave of a sharer that hands on", func(b *bench) { full(b); b.enterAll(queueingCounted, "d", "e") }, leaves},
	{"leave of a sharer, others stay", func(b *bench) { b.enterAll(counted, "a", "b") }, leaves},
	{"leave of the last sharer", func(b *bench) { b.enter("a", counted) }, leaves},
	{"confirmation", func(b *bench) { contended(b); b.must(leaves(b)) },
		func(b *bench) (*script, []string) { return b.renewal("b") }},
	{"renewal by record", contended,
		func(b *bench) (*script, []string) { return b.renewal("a") }},
}

// withoutCommon are the scripts without their second stage.
var withoutCommon = map[*script]*script{
	acquireScript: newScript(func() []string { return []string{acquireFreeLua, roomLua, recordLua, ruleLua + acquireLua} }),
	renewScript:   newScript(func() []string { return []string{renewFreeLua, roomLua, recordLua, ruleLua + renewLua} }),
	releaseScript: newScript(func() []string { return []string{releaseFreeLua, roomLua, recordLua, ruleLua + releaseLua} }),
}

// TestCost_CommonCasesAreWorthACopyOfTheRule compares the server's time for each
// case that a second stage settles with the time that the general path takes. A copy
// of the rule that saves less than a fifth is not worth its lines.
func TestCost_CommonCasesAreWorthACopyOfTheRule(t *testing.T) {
	skip.Nightly(t, "it compares the server's times")
	skip.Racing(t, "it compares the server's times")
	b := &bench{t: t, client: redistest.Start(t).Client()}
	var table strings.Builder
	for _, c := range commonCases {
		with, without := b.compare(c)
		fmt.Fprintf(&table, "| %s | %.0f | %.0f | %.2f |\n", c.name, with, without, with/without)
		if with >= 0.8*without {
			t.Errorf("%s: %.0f µs, and %.0f without the second stage", c.name, with, without)
		}
	}
	t.Logf("server time of one call, µs\n\n| case | with the second stage | without | ratio |\n|---|--:|--:|--:|\n%s", &table)
}

// compare returns the least of the server's time for a case, in µs, with the
// second stage of its script and without it: other work on the machine only adds.
// While it looks as if the stage were not worth it there are more rounds.
func (b *bench) compare(c commonCase) (with, without float64) {
	b.t.Helper()
	const least, most = 5, 40
	with, without = math.Inf(1), math.Inf(1)
	for round := range most {
		if round >= least && with < 0.8*without {
			break
		}
		with = min(with, b.usec(c, func(sc *script) *script { return sc }))
		without = min(without, b.usec(c, func(sc *script) *script { return withoutCommon[sc] }))
	}
	return with, without
}

// usec returns the server's time for one call of a case, with another script instead of the
// case's. Each call has a room of its own.
func (b *bench) usec(c commonCase, instead func(*script) *script) (usec float64) {
	b.t.Helper()
	const rooms = 20
	ctx, pipe := context.Background(), b.client.Pipeline()
	for range rooms {
		b.made++
		b.prefix = fmt.Sprintf("%d:", b.made)
		c.make(b)
		sc, cmd := c.call(b)
		f := instead(sc).plain()
		b.client.ScriptLoad(ctx, f.text)
		args := []any{evalsha, f.sha}
		for _, word := range cmd[2:] {
			args = append(args, word)
		}
		pipe.Do(ctx, args...)
	}
	b.client.ConfigResetStat(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		b.t.Fatalf("%s: %v", c.name, err)
	}
	stats := b.client.Info(ctx, "commandstats").Val()
	_, stats, _ = strings.Cut(stats, "cmdstat_evalsha:")
	var calls int
	if _, err := fmt.Sscanf(stats, "calls=%d,usec=%f", &calls, &usec); err != nil || calls != rooms {
		b.t.Fatalf("%s: %d calls of %d: %v", c.name, calls, rooms, err)
	}
	b.client.FlushAll(ctx)
	return usec / rooms
}
