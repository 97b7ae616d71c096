package microscope

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// openRedis defines the functions of Redis for scripts, and removes differences from the Lua of
// Redis: the string functions of gopher-lua print a missing argument where Lua raises an error.
func (s *Server) openRedis() {
	l := s.state
	redis := l.NewTable()
	redis.RawSetString("call", l.NewFunction(func(*lua.LState) int { return s.call(false) }))
	redis.RawSetString("pcall", l.NewFunction(func(*lua.LState) int { return s.call(true) }))
	redis.RawSetString("error_reply", l.NewFunction(func(l *lua.LState) int {
		l.Push(field(l, "err", l.CheckString(1)))
		return 1
	}))
	globals := l.G.Global
	globals.RawSetString("redis", redis)
	l.GetField(globals, "string").(*lua.LTable).RawSetString("format", l.NewFunction(format))
	globals.RawSetString("tonumber", l.NewFunction(tonumber))
	meta := l.NewTable()
	meta.RawSetString("__newindex", l.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Attempt to modify a readonly table: %s", l.Get(2))
		return 0
	}))
	meta.RawSetString("__index", l.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Script attempted to access nonexistent global variable '%s'", l.Get(2))
		return 0
	}))
	globals.Metatable = meta
}

func table(words []string) *lua.LTable {
	t := new(lua.LTable)
	t.Metatable = lua.LNil
	for i, word := range words {
		t.RawSetInt(i+1, lua.LString(word))
	}
	return t
}

func field(l *lua.LState, name, value string) *lua.LTable {
	t := l.NewTable()
	t.RawSetString(name, lua.LString(value))
	return t
}

// format is string.format with the directives that the scripts use.
func format(l *lua.LState) int {
	var b strings.Builder
	pattern, arg := l.CheckString(1), 1
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '%' {
			b.WriteByte(pattern[i])
			continue
		}
		if i++; i == len(pattern) {
			l.RaiseError("invalid option '%%' to 'format'")
		}
		switch pattern[i] {
		case '%':
			b.WriteByte('%')
			continue
		case 's', 'd':
		default:
			l.RaiseError("the microscope knows no '%%%c' of string.format", pattern[i])
		}
		arg++
		value := l.Get(arg)
		if arg > l.GetTop() {
			l.RaiseError("bad argument #%d to 'format' (no value)", arg)
		}
		if pattern[i] == 's' {
			b.WriteString(tostring(value))
			continue
		}
		n, ok := number(value)
		if !ok {
			l.RaiseError("bad argument #%d to 'format' (number expected, got %s)", arg, value.Type())
		}
		b.WriteString(strconv.FormatInt(int64(n), 10))
	}
	l.Push(lua.LString(b.String()))
	return 1
}

// tostring prints numbers as Lua 5.1 does, with 14 digits.
func tostring(v lua.LValue) string {
	if n, ok := v.(lua.LNumber); ok {
		return strconv.FormatFloat(float64(n), 'g', 14, 64)
	}
	return v.String()
}

// number returns the value as a number, also if it is the text of a number.
func number(v lua.LValue) (float64, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return float64(v), true
	case lua.LString:
		n, err := strconv.ParseFloat(strings.TrimSpace(string(v)), 64)
		return n, err == nil
	}
	return 0, false
}

func tonumber(l *lua.LState) int {
	if l.GetTop() == 0 {
		l.RaiseError("bad argument #1 to 'tonumber' (value expected)")
	}
	if n, ok := number(l.Get(1)); ok {
		l.Push(lua.LNumber(n))
	} else {
		l.Push(lua.LNil)
	}
	return 1
}

// call is redis.call and redis.pcall.
func (s *Server) call(caught bool) int {
	l := s.state
	words := make([]string, l.GetTop())
	for i := range words {
		switch v := l.Get(i + 1).(type) {
		case lua.LString:
			words[i] = string(v)
		case lua.LNumber:
			words[i] = strconv.FormatFloat(float64(v), 'g', 17, 64)
			if n := int64(v); float64(n) == float64(v) {
				words[i] = strconv.FormatInt(n, 10)
			}
		default:
			return s.answer(caught, Error("ERR Lua redis lib command arguments must be strings or integers"))
		}
	}
	wrote := false
	if n := len(s.Calls); n > 0 {
		last := &s.Calls[n-1]
		wrote = last.Wrote
		if last.Changed {
			wrote = !s.Keys.Same(s.first)
		}
	}
	s.Calls = append(s.Calls, Call{Words: words, Caught: caught, Wrote: wrote})
	c := &s.Calls[len(s.Calls)-1]
	if s.Before != nil {
		c.Failed = s.Before(c)
	}
	if c.Failed != "" {
		return s.answer(caught, c.Failed)
	}
	c.Reply, c.Changed = s.do(words)
	if err, ok := c.Reply.(Error); ok {
		c.Failed = err
	}
	return s.answer(caught, c.Reply)
}

func (s *Server) answer(caught bool, reply any) int {
	l := s.state
	if err, ok := reply.(Error); ok && !caught {
		l.Error(field(l, "err", string(err)), 1)
	}
	l.Push(toLua(l, reply))
	return 1
}

// toLua makes a value of a reply as Redis does.
func toLua(l *lua.LState, reply any) lua.LValue {
	switch reply := reply.(type) {
	case nil:
		return lua.LFalse
	case int64:
		return lua.LNumber(reply)
	case string:
		return lua.LString(reply)
	case Status:
		return field(l, "ok", string(reply))
	case Error:
		return field(l, "err", string(reply))
	case []any:
		t := l.CreateTable(len(reply), 0)
		for i, item := range reply {
			t.RawSetInt(i+1, toLua(l, item))
		}
		return t
	}
	panic(fmt.Sprintf("microscope: reply %T", reply))
}

// Status is a status reply, such as OK.
type Status string

// fromLua makes a reply of a value as Redis does.
func fromLua(v lua.LValue) any {
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return int64(math.Trunc(float64(v)))
	case lua.LBool:
		if v {
			return int64(1)
		}
	case *lua.LTable:
		if err, ok := v.RawGetString("err").(lua.LString); ok {
			return Error(err)
		}
		if status, ok := v.RawGetString("ok").(lua.LString); ok {
			return Status(status)
		}
		items := []any{}
		for i := 1; ; i++ {
			item := v.RawGetInt(i)
			if item == lua.LNil {
				return items
			}
			items = append(items, fromLua(item))
		}
	}
	return nil
}

// ScriptError is an error that Lua raised, for example when nil is compared with a number.
type ScriptError struct{ Text string }

func (e *ScriptError) Error() string { return "ERR " + e.Text }

// scriptError is the error of a script that did not end: that of a command, or Lua's.
func scriptError(err error) error {
	var raised *lua.ApiError
	if !errors.As(err, &raised) {
		return &ScriptError{Text: err.Error()}
	}
	if t, ok := raised.Object.(*lua.LTable); ok {
		if text, ok := t.RawGetString("err").(lua.LString); ok {
			return Error(text)
		}
	}
	return &ScriptError{Text: strings.SplitN(raised.Object.String(), "\n", 2)[0]}
}

// clip returns a copy of s without spare capacity, for use with append.
func clip[T any](s []T) []T { return slices.Clip(slices.Clone(s)) }
