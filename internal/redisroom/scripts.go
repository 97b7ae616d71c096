package redisroom

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
	"sync"
)

//go:embed lua/room/1_state.lua
var roomLua string

//go:embed lua/room/2_record.lua
var recordLua string

//go:embed lua/room/3_rule.lua
var ruleLua string

//go:embed lua/room/visit.lua
var visitLua string

//go:embed lua/room/places.lua
var placesLua string

//go:embed lua/acquire/0_once.lua
var acquireOnceLua string

//go:embed lua/acquire/1_free.lua
var acquireFreeLua string

//go:embed lua/acquire/2_common.lua
var acquireBusyLua string

//go:embed lua/acquire/3_general.lua
var acquireLua string

//go:embed lua/renew/1_free.lua
var renewFreeLua string

//go:embed lua/renew/2_common.lua
var renewKnownLua string

//go:embed lua/renew/3_general.lua
var renewLua string

//go:embed lua/renew_uncontended.lua
var renewUncontendedLua string

//go:embed lua/release/1_free.lua
var releaseFreeLua string

//go:embed lua/release/2_common.lua
var releaseNextLua string

//go:embed lua/release/3_general.lua
var releaseLua string

//go:embed lua/break.lua
var breakLua string

//go:embed lua/inspect.lua
var inspectLua string

//go:embed lua/list.lua
var listLua string

//go:embed lua/mark.lua
var markLua string

// A script has stages: the free path, the commonest other cases, the general path. A call
// that a stage settles does not define the functions of the next one. The second stage only
// saves time.
var (
	acquireScript = newScript(func() []string {
		return []string{acquireFreeLua, acquireBusyLua, roomLua, recordLua, ruleLua + acquireLua}
	})
	onceScript = newScript(func() []string {
		return []string{acquireOnceLua + acquireFreeLua, acquireBusyLua, roomLua, recordLua, ruleLua + acquireLua}
	})
	renewScript = newFreeingScript(func() []string {
		return []string{renewFreeLua, renewKnownLua, roomLua, recordLua, ruleLua + renewLua}
	})
	renewUncontended = newFreeingScript(stage(renewUncontendedLua))
	releaseScript    = newFreeingScript(func() []string {
		return []string{releaseFreeLua, releaseNextLua, roomLua, recordLua, ruleLua + releaseLua}
	})
	breakScript   = newFreeingScript(func() []string { return []string{roomLua, recordLua, ruleLua + breakLua} })
	inspectScript = newScript(stage(inspectLua))
	listScript    = newScript(stage(listLua))
	markScript    = newScript(stage(markLua))
)

// script is a Lua script in two forms: the main form, and a plain form for a server that
// does not understand its header. They are often the same. They are made on first use,
// since a process with another store needs neither.
type script struct{ main, plain func() *form }

// form is one text of a script.
type form struct{ text, sha string }

// includes replaces lines of the scripts by the files of lua/room that they name.
var includes = strings.NewReplacer("-- include visit.lua\n", visitLua, "-- include places.lua\n", placesLua)

func newForm(text string) *form {
	text = includes.Replace(text)
	sum := sha1.Sum([]byte(text))
	return &form{text: text, sha: hex.EncodeToString(sum[:])}
}

// stage returns the stages of a script that has one.
func stage(text string) func() []string { return func() []string { return []string{text} } }

// newScript makes a script of the stages that a function puts together when they are needed.
func newScript(stages func() []string) *script {
	f := sync.OnceValue(func() *form { return newForm(nest(stages())) })
	return &script{main: f, plain: f}
}

// nest puts each stage into a function, which the previous stage calls at its end, so that
// a call pays only for the stages that it reaches: Lua clears the space of all variables of
// a function when it begins. Defining a function looks up each outer variable in a list of
// its own stage's variables, but finds variables of earlier stages at once. So shared
// variables belong into an earlier stage: the three files of lua/room as one stage take
// half as long again.
func nest(stages []string) string {
	if len(stages) == 1 {
		return stages[0]
	}
	return stages[0] + "return (function()\n" + nest(stages[1:]) + "end)()\n"
}

// newFreeingScript makes a script that also runs when the server is out of memory, since
// it frees more than it takes. Redis 7 and later understand the header for that; other
// servers refuse to compile it.
func newFreeingScript(stages func() []string) *script {
	text := sync.OnceValue(func() string { return nest(stages()) })
	return &script{
		main:  sync.OnceValue(func() *form { return newForm("#!lua flags=allow-oom\n" + text()) }),
		plain: sync.OnceValue(func() *form { return newForm(text()) }),
	}
}

const (
	evalsha  = "EVALSHA"
	eval     = "EVAL"
	firstKey = 3 // of a command, behind one of these, the digest and the number of keys
)

// text returns the form with the given digest.
func (s *script) text(sha string) string {
	if sha == s.main().sha {
		return s.main().text
	}
	return s.plain().text
}

// isUnfinished reports whether a script ended early to limit its duration.
func isUnfinished(err ReplyError) bool { return strings.HasPrefix(string(err), "LHMORE") }

// isNoScript reports whether the server does not know the script's digest.
func isNoScript(err ReplyError) bool { return strings.HasPrefix(string(err), "NOSCRIPT") }

// isUncompiled reports whether the server did not understand a script.
func isUncompiled(err ReplyError) bool {
	return strings.Contains(string(err), "ompiling script") || strings.Contains(string(err), "shebang")
}
