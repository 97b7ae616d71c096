// Package caller finds the place in a program from which the library was called.
package caller

import (
	"path"
	"runtime"
	"strconv"
	"strings"
)

// Stack is the innermost part of a call stack.
type Stack [14]uintptr

// Here returns the stack without its innermost frames, which are the same for all calls: that
// of Here and of skip functions around it.
func Here(skip int) *Stack {
	at := new(Stack)
	runtime.Callers(2+skip, at[:])
	return at
}

// String returns the file and line of the innermost function outside the library.
func (s *Stack) String() string {
	frames := runtime.CallersFrames(s[:])
	for {
		frame, more := frames.Next()
		if frame.PC == 0 {
			return "unknown"
		}
		if !ours(frame.Function) {
			return path.Join(path.Base(path.Dir(frame.File)), path.Base(frame.File)) + ":" + strconv.Itoa(frame.Line)
		}
		if !more {
			return "unknown"
		}
	}
}

// ours reports whether a function belongs to the library.
func ours(function string) bool {
	return strings.HasPrefix(function, "github.com/leasehold-go/leasehold.") ||
		strings.HasPrefix(function, "github.com/leasehold-go/leasehold/internal/line.")
}
