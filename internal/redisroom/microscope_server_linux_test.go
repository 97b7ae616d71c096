package redisroom

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/microscope"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// TestMicroscope_ShowsWhatAServerDoes repeats the calls of the microscope on a server whose clock
// stands still too, on the same keys, and compares answers, errors and keys.
func TestMicroscope_ShowsWhatAServerDoes(t *testing.T) {
	live.Test(t)
	server, clock := redistest.StartWithClock(t)
	b := bounds{states: 40, damaged: 2}
	if testing.Short() {
		b = bounds{states: 10, damaged: 1}
	}
	c := &counterpart{t: t, client: server.Client(), clock: clock}
	for _, w := range worlds {
		l := newLens(lensStart)
		l.ran = c.compare
		if _, err := l.explore(w, b); err != nil {
			t.Errorf("%s: %v", w.name, err)
		}
		l.server.Close()
	}
	t.Logf("%d runs of a script agree", c.runs)
}

// counterpart is a server that repeats the calls of the interpreter.
type counterpart struct {
	t      *testing.T
	client *redis.Client
	clock  *redistest.Clock
	runs   int
}

// compare runs a script again on the server.
func (c *counterpart) compare(r run) {
	if c.t.Failed() {
		return
	}
	ctx := c.t.Context()
	pipe := c.client.Pipeline()
	pipe.Do(ctx, "FLUSHALL")
	for name, v := range r.before {
		load(c.t, pipe, name, v)
	}
	c.clock.Hold(time.UnixMicro(r.now).Add(-time.Minute)) // some of it may be ending
	if _, err := pipe.Exec(ctx); err != nil {
		c.t.Errorf("load: %v", err)
	}
	c.clock.Hold(time.UnixMicro(r.now))
	pipe = c.client.Pipeline()
	args := []any{"EVAL", r.text, len(r.keys)}
	for _, word := range append(append([]string{}, r.keys...), r.args...) {
		args = append(args, word)
	}
	eval := pipe.Do(ctx, args...)
	size := pipe.DBSize(ctx)
	pictures := make(map[string]*picture)
	for _, name := range r.keys {
		pictures[name] = take(c.t, pipe, name)
	}
	_, _ = pipe.Exec(ctx) // the errors are checked one by one
	c.runs++

	reply, err := eval.Result()
	if err == redis.Nil { //nolint:errorlint // it is never wrapped
		err = nil
	}
	if !sameError(err, r.err) || err == nil && !reflect.DeepEqual(plain(reply), plain(r.reply)) {
		c.t.Errorf("%s\nat %d on\n%sthe microscope returned %#v, %v\nthe server returned %#v, %v", head(r), r.now, show(r.before), r.reply, r.err, reply, err)
	}
	if n := size.Val(); n != int64(len(r.after)) {
		c.t.Errorf("%s: %d keys, want %d", head(r), n, len(r.after))
	}
	for name, p := range pictures {
		if got, want := p.value(), r.after[name]; !got.Same(want) {
			c.t.Errorf("%s\nat %d on\n%sthe microscope leaves\n%sthe server leaves\n%s", head(r), r.now, show(r.before),
				show(microscope.Keys{name: want}), show(microscope.Keys{name: got}))
		}
	}
}

// head names a run.
func head(r run) string {
	for line := range strings.Lines(r.text) {
		if name, ok := strings.CutPrefix(line, "-- "); ok {
			return strings.TrimSpace(name) + fmt.Sprintf(" %q", r.args)
		}
	}
	return fmt.Sprintf("%q", r.args)
}

// load puts a value where the script finds it.
func load(t *testing.T, pipe redis.Pipeliner, name string, v microscope.Value) {
	t.Helper()
	ctx := t.Context()
	switch {
	case v.Text != nil:
		pipe.Set(ctx, name, *v.Text, 0)
	case v.Hash != nil:
		pipe.HSet(ctx, name, v.Hash)
	case v.Sorted != nil:
		for _, m := range v.Sorted {
			pipe.ZAdd(ctx, name, redis.Z{Score: m.Score, Member: m.Name})
		}
	case v.List:
		pipe.RPush(ctx, name, "item")
	}
	if v.At != 0 {
		pipe.Do(ctx, "PEXPIREAT", name, v.At)
	}
}

// picture is the set of replies about a key.
type picture struct {
	kind   *redis.StatusCmd
	at     *redis.DurationCmd
	text   *redis.StringCmd
	hash   *redis.MapStringStringCmd
	sorted *redis.ZSliceCmd
}

func take(t *testing.T, pipe redis.Pipeliner, name string) *picture {
	t.Helper()
	ctx := t.Context()
	return &picture{
		kind: pipe.Type(ctx, name), at: pipe.PExpireTime(ctx, name), text: pipe.Get(ctx, name),
		hash: pipe.HGetAll(ctx, name), sorted: pipe.ZRangeWithScores(ctx, name, 0, -1),
	}
}

func (p *picture) value() (v microscope.Value) {
	switch p.kind.Val() {
	case "string":
		text := p.text.Val()
		v.Text = &text
	case "hash":
		v.Hash = p.hash.Val()
	case "zset":
		for _, z := range p.sorted.Val() {
			v.Sorted = append(v.Sorted, microscope.Member{Name: z.Member.(string), Score: z.Score})
		}
	case "list":
		v.List = true
	}
	if at := p.at.Val(); at > 0 {
		v.At = at.Milliseconds()
	}
	return v
}

// sameError compares errors up to the position in the script that a server adds.
func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	if _, lua := b.(*microscope.ScriptError); lua { //nolint:errorlint // it is never wrapped
		return strings.Contains(a.Error(), "user_script:")
	}
	text, _, _ := strings.Cut(a.Error(), " script: ")
	return text == b.Error()
}

// plain makes replies of both comparable.
func plain(reply any) any {
	switch reply := reply.(type) {
	case []any:
		out := make([]any, len(reply))
		for i := range reply {
			out[i] = plain(reply[i])
		}
		return out
	case error:
		return "error " + reply.Error()
	case microscope.Status:
		return string(reply)
	case int64:
		return strconv.FormatInt(reply, 10) + "n"
	}
	return reply
}
