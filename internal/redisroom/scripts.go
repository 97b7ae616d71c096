package redisroom

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
	"sync"
)

//go:embed lua
var luaFiles embed.FS

// A script has stages: the free path, the commonest other cases, the general path. A call
// that a stage settles does not define the functions of the next one. The second stage only
// saves time.
var (
	acquireScript    = newScript("acquire/1_free", "acquire/2_common", "room/1_state", "room/2_record", "room/3_rule acquire/3_general")
	onceScript       = newScript("acquire/0_once acquire/1_free", "acquire/2_common", "room/1_state", "room/2_record", "room/3_rule acquire/3_general")
	renewScript      = newFreeingScript("renew/1_free", "renew/2_common", "room/1_state", "room/2_record", "room/3_rule renew/3_general")
	renewUncontended = newFreeingScript("renew_uncontended")
	releaseScript    = newFreeingScript("release/1_free", "release/2_common", "room/1_state", "room/2_record", "room/3_rule release/3_general")
	breakScript      = newFreeingScript("room/1_state", "room/2_record", "room/3_rule break")
	inspectScript    = newScript("inspect")
	listScript       = newScript("list")
	markScript       = newScript("mark")
)

// script is a Lua script in two forms: the main form, and a plain form for a server that
// does not understand its header. They are often the same. They are made on first use,
// since a process with another store needs neither.
type script struct{ main, plain func() *form }

// form is one text of a script.
type form struct{ text, sha string }

// include replaces lines of a script by the files of lua/room that they name.
func include(text string) string {
	for _, name := range []string{"visit", "places", "ends"} {
		text = strings.ReplaceAll(text, "-- include "+name+".lua\n", read("room/"+name))
	}
	return text
}

// read returns the text of a stage: files of the folder lua, with spaces between their names.
func read(stage string) string {
	var all strings.Builder
	for name := range strings.FieldsSeq(stage) {
		text, _ := luaFiles.ReadFile("lua/" + name + ".lua") // the tests run every script
		all.Write(text)
	}
	return all.String()
}

func newForm(text string) *form {
	text = include(text)
	sum := sha1.Sum([]byte(text))
	return &form{text: text, sha: hex.EncodeToString(sum[:])}
}

// newScript makes a script of stages when it is needed.
func newScript(stages ...string) *script {
	f := sync.OnceValue(func() *form { return newForm(nest(stages)) })
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
		return read(stages[0])
	}
	return read(stages[0]) + "return (function()\n" + nest(stages[1:]) + "end)()\n"
}

// newFreeingScript makes a script that also runs when the server is out of memory, since
// it frees more than it takes. Redis 7 and later understand the header for that; other
// servers refuse to compile it.
func newFreeingScript(stages ...string) *script {
	text := sync.OnceValue(func() string { return nest(stages) })
	return &script{
		main:  sync.OnceValue(func() *form { return newForm("#!lua flags=allow-oom\n" + text()) }),
		plain: sync.OnceValue(func() *form { return newForm(text()) }),
	}
}

const (
	evalsha = "EVALSHA"
	eval    = "EVAL"
)

// FirstKey is the index of the first key in a command, behind the name, the digest and the number of keys.
const FirstKey = 3

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
