// Package microscope runs Redis scripts in an interpreter, over a keyspace whose clock
// stands still, with a failure at any call of a command.
//
// It is for tests. It implements the commands that the scripts of internal/redisroom use, and
// refuses every other. A test there compares its answers and its keys with a real server's.
package microscope

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// Server is a keyspace and an interpreter. It is for one goroutine.
type Server struct {
	// Now is the wall clock in µs. A key that ends exists through the millisecond of its end, and
	// for a script until the script ends.
	Now int64
	// Keys is the data. A value is replaced when it changes, never changed in place, so that a
	// shallow copy is a snapshot of the whole.
	Keys Keys
	// Before, if set, is called before each command of a script. It may move the clock. If it
	// returns an error, the command fails with it.
	Before func(c *Call) Error
	// Calls are the commands of the last script.
	Calls []Call
	// Published are the messages of the last script.
	Published []Message
	// Limit bounds how long a script takes, unless it is 0.
	Limit time.Duration

	state   *lua.LState
	scripts *Scripts
	first   Keys // the keys at the start of the script
}

// Scripts are compiled scripts by their texts, for any number of servers.
type Scripts struct{ protos sync.Map }

// Keys are values by name.
type Keys map[string]Value

// Clone returns a snapshot of the keys.
func (k Keys) Clone() Keys { return maps.Clone(k) }

// Value is the content of a key, and the time when it ends.
type Value struct {
	Text   *string
	Hash   map[string]string
	Sorted []Member
	List   bool  // of a type that no script uses
	At     int64 // ms at which it ends, 0 for never
}

// Member is one of a sorted set, which is kept in its order.
type Member struct {
	Name  string
	Score float64
}

// Text is the value of a string that never ends.
func Text(s string) Value { return Value{Text: &s} }

// Type is the name that the server has for the type of a value.
func (v Value) Type() string {
	switch {
	case v.Text != nil:
		return "string"
	case v.Hash != nil:
		return "hash"
	case v.Sorted != nil:
		return "zset"
	case v.List:
		return "list"
	}
	return "none"
}

// Call is one command of a script.
type Call struct {
	Words []string
	// Caught is set for redis.pcall, which returns an error instead of raising it.
	Caught bool
	// Wrote is set if the keys had been changed since the start of the script.
	Wrote bool
	// Failed is the error that the command returned, if any.
	Failed Error
	// Reply is its answer, unless Before stopped it.
	Reply any
	// Changed is set if the command changed a key.
	Changed bool
}

// Message is a published message.
type Message struct{ Channel, Text string }

// Error is an error reply.
type Error string

func (e Error) Error() string { return string(e) }

// common are the scripts of all servers from New.
var common Scripts

// New returns an empty server. All such servers compile a script once.
func New(now int64) *Server { return NewWith(now, &common) }

// NewWith is [New] for scripts that are not kept for other servers.
func NewWith(now int64, scripts *Scripts) *Server {
	s := &Server{Now: now, Keys: make(Keys), scripts: scripts}
	s.state = lua.NewState(lua.Options{SkipOpenLibs: true})
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenTable, lua.OpenString, lua.OpenMath} {
		s.state.Push(s.state.NewFunction(open))
		s.state.Call(0, 0)
	}
	s.openRedis()
	return s
}

// Close frees the interpreter.
func (s *Server) Close() { s.state.Close() }

// ms is the clock as commands that end keys read it.
func (s *Server) ms() int64 { return s.Now / 1000 }

// Live returns the keys that are there at the clock's time.
func (s *Server) Live() Keys { return s.Keys.at(s.ms()) }

func (k Keys) at(ms int64) Keys {
	live := make(Keys, len(k))
	for name, v := range k {
		if v.At == 0 || ms <= v.At {
			live[name] = v
		}
	}
	return live
}

// Run runs a script's text, as EVAL does, and returns its reply: nil, an int64, a string,
// a slice of replies, or an Error; err is the script's own.
func (s *Server) Run(text string, keys, args []string) (reply any, err error) {
	proto, err := s.scripts.compile(text)
	if err != nil {
		return nil, err
	}
	s.Calls, s.Published = s.Calls[:0], nil
	s.Keys = s.Live() // keys that exist now do not end during the script
	s.first = s.Keys
	l := s.state
	globals := l.G.Global
	if s.Limit > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), s.Limit)
		defer cancel()
		l.SetContext(ctx)
		defer l.RemoveContext()
	}
	globals.RawSetString("KEYS", table(keys))
	globals.RawSetString("ARGV", table(args))
	l.Push(l.NewFunctionFromProto(proto))
	if err := l.PCall(0, 1, nil); err != nil {
		return nil, scriptError(err)
	}
	result := l.Get(-1)
	l.SetTop(0)
	switch reply := fromLua(result).(type) {
	case Error:
		return nil, reply
	default:
		return reply, nil
	}
}

// header is the beginning of the line with a script's options for the server.
const header = "#!lua"

func (s *Scripts) compile(text string) (*lua.FunctionProto, error) {
	if proto, known := s.protos.Load(text); known {
		return proto.(*lua.FunctionProto), nil
	}
	body := text
	if strings.HasPrefix(text, header) {
		_, rest, _ := strings.Cut(text, "\n")
		body = "\n" + rest
	}
	chunk, err := parse.Parse(strings.NewReader(body), "user_script")
	if err != nil {
		return nil, fmt.Errorf("compiling script: %w", err)
	}
	proto, err := lua.Compile(chunk, "user_script")
	if err == nil {
		s.protos.Store(text, proto)
	}
	return proto, err
}

// Lasting returns the keys that never end.
func (s *Server) Lasting() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Keys)) {
		if s.Keys[name].At == 0 {
			names = append(names, name)
		}
	}
	return names
}
