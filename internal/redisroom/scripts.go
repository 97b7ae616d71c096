package redisroom

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
)

//go:embed room.lua
var roomLua string

//go:embed record.lua
var recordLua string

//go:embed rule.lua
var ruleLua string

//go:embed acquire_once.lua
var acquireOnceLua string

//go:embed acquire_free.lua
var acquireFreeLua string

//go:embed acquire_busy.lua
var acquireBusyLua string

//go:embed acquire.lua
var acquireLua string

//go:embed renew_free.lua
var renewFreeLua string

//go:embed renew_known.lua
var renewKnownLua string

//go:embed renew.lua
var renewLua string

//go:embed renew_alone.lua
var renewAloneLua string

//go:embed release_free.lua
var releaseFreeLua string

//go:embed release_next.lua
var releaseNextLua string

//go:embed release.lua
var releaseLua string

//go:embed break.lua
var breakLua string

//go:embed inspect.lua
var inspectLua string

//go:embed list.lua
var listLua string

//go:embed mark.lua
var markLua string

// A script's free path stands first, then the commonest of the other cases: a
// call that one of them settles does not even define the functions of the rest.
var (
	acquireScript = newScript(acquireFreeLua, acquireBusyLua, roomLua, recordLua, ruleLua+acquireLua)
	onceScript    = newScript(acquireOnceLua+acquireFreeLua, acquireBusyLua, roomLua, recordLua, ruleLua+acquireLua)
	renewScript   = newFreeingScript(renewFreeLua, renewKnownLua, roomLua, recordLua, ruleLua+renewLua)
	renewAlone    = newFreeingScript(renewAloneLua)
	releaseScript = newFreeingScript(releaseFreeLua, releaseNextLua, roomLua, recordLua, ruleLua+releaseLua)
	breakScript   = newFreeingScript(roomLua, recordLua, ruleLua+breakLua)
	inspectScript = newScript(inspectLua)
	listScript    = newScript(listLua)
	markScript    = newScript(markLua)
)

// script is a Lua script: the form that is sent, and the one for a server that
// does not understand the first one's header. They are often the same.
type script struct{ main, plain *form }

// form is one text of a script.
type form struct{ text, sha string }

func newForm(text string) *form {
	sum := sha1.Sum([]byte(text))
	return &form{text: text, sha: hex.EncodeToString(sum[:])}
}

func newScript(stages ...string) *script {
	f := newForm(nest(stages))
	return &script{main: f, plain: f}
}

// nest puts each stage into a function of its own, which the one before it calls
// at its end, so that a call pays only for the stages that it reaches: Lua clears
// the room for all variables of a function when it begins. And a function that is
// defined looks up each variable around it in a list of those of its own stage,
// while it finds those of the stages before at once. So what many functions share
// stands in a stage before theirs: room.lua, record.lua and rule.lua in one take
// half as long again.
func nest(stages []string) string {
	if len(stages) == 1 {
		return stages[0]
	}
	return stages[0] + "return (function()\n" + nest(stages[1:]) + "end)()\n"
}

// newFreeingScript makes a script that also runs when the server is out of
// memory: it frees more than it takes, and without it nothing would be freed.
// The header that says so is known to Redis 7 and later; others refuse to
// compile it.
func newFreeingScript(stages ...string) *script {
	text := nest(stages)
	return &script{main: newForm("#!lua flags=allow-oom\n" + text), plain: newForm(text)}
}

const (
	evalsha = "EVALSHA"
	eval    = "EVAL"
)

// text returns the form with the given digest.
func (s *script) text(sha string) string {
	if sha == s.main.sha {
		return s.main.text
	}
	return s.plain.text
}

// isNoScript reports whether the server has no script of the digest sent.
func isNoScript(err ReplyError) bool { return strings.HasPrefix(string(err), "NOSCRIPT") }

// isUncompiled reports whether the server did not understand a script.
func isUncompiled(err ReplyError) bool {
	return strings.Contains(string(err), "ompiling script") || strings.Contains(string(err), "shebang")
}
