// Package swap is imported by sources that contain every change at once, each with
// a number. The environment names the number of the change that is in force. So tests are
// built once for all changes.
//
// If the environment names a file instead, the package writes to it, once, the number of each
// change that would have altered the value of an expression.
package swap

import (
	"cmp"
	"os"
	"strconv"
	"sync"
)

// The names of the variables of the environment.
const (
	Number = "LEASEHOLD_MUTANT"       // of the change that is in force
	Notes  = "LEASEHOLD_MUTANT_NOTES" // the file
)

// active is the change in force, 0 for none.
var active, _ = strconv.Atoi(os.Getenv(Number))

// notes is the file for the numbers of changes, or nil.
var notes = func() *os.File {
	name := os.Getenv(Notes)
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	return f
}()

// noted has the changes that were written.
var noted sync.Map

// note writes that the change n would alter a value here.
func note(n int) {
	if _, known := noted.LoadOrStore(n, nil); !known {
		_, _ = notes.WriteString(strconv.Itoa(n) + "\n")
	}
}

// either returns was, or is if change n is in force.
func either[T comparable](n int, was, is T) T {
	if notes != nil && was != is {
		note(n)
	}
	if n == active {
		return is
	}
	return was
}

// Value returns a constant: was, or is.
func Value[T comparable](n int, was, is T) T { return either(n, was, is) }

// Not returns a condition, or its opposite.
func Not[T ~bool](n int, was T) T { return either(n, was, !was) }

// And returns a && b, or a || b.
func And(n int, a bool, b func() bool) bool {
	if notes != nil && !a {
		note(n) // b may not be called here
	}
	if n == active {
		return a || b()
	}
	is := a && b()
	if notes != nil && is != a {
		note(n)
	}
	return is
}

// Or returns a || b, or a && b.
func Or(n int, a bool, b func() bool) bool {
	if notes != nil && a {
		note(n) // b may not be called here
	}
	if n == active {
		return a && b()
	}
	is := a || b()
	if notes != nil && is != a {
		note(n)
	}
	return is
}

// The comparisons use two numbers: the first selects a near comparison, the next the opposite.

// Less returns a < b, a <= b, or a >= b.
func Less[T cmp.Ordered](n int, a, b T) bool { return either(n+1, either(n, a < b, a <= b), a >= b) }

// LessEqual returns a <= b, a < b, or a > b.
func LessEqual[T cmp.Ordered](n int, a, b T) bool {
	return either(n+1, either(n, a <= b, a < b), a > b)
}

// Greater returns a > b, a >= b, or a <= b.
func Greater[T cmp.Ordered](n int, a, b T) bool {
	return either(n+1, either(n, a > b, a >= b), a <= b)
}

// GreaterEqual returns a >= b, a > b, or a < b.
func GreaterEqual[T cmp.Ordered](n int, a, b T) bool {
	return either(n+1, either(n, a >= b, a > b), a < b)
}

type integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

type number interface{ integer | ~float32 | ~float64 }

// Add returns a + b, or a - b.
func Add[T number](n int, a, b T) T { return either(n, a+b, a-b) }

// Sub returns a - b, or a + b.
func Sub[T number](n int, a, b T) T { return either(n, a-b, a+b) }

// Mul returns a * b, or a / b.
func Mul[T number](n int, a, b T) T {
	if n == active {
		return a / b
	}
	if notes != nil && (b == 0 || a*b != a/b) {
		note(n)
	}
	return a * b
}

// Div returns a / b, or a * b.
func Div[T number](n int, a, b T) T {
	if n == active {
		return a * b
	}
	if notes != nil && (b == 0 || a*b != a/b) {
		note(n)
	}
	return a / b
}

// Left returns a << b, or a >> b.
func Left[T, N integer](n int, a T, b N) T { return either(n, a<<b, a>>b) }

// Right returns a >> b, or a << b.
func Right[T, N integer](n int, a T, b N) T { return either(n, a>>b, a<<b) }

// Minus returns -a, or a.
func Minus[T number](n int, a T) T { return either(n, -a, a) }

// Min returns the least, or the greatest.
func Min[T cmp.Ordered](n int, a T, more ...T) T {
	least, greatest := ends(a, more)
	return either(n, least, greatest)
}

// Max returns the greatest, or the least.
func Max[T cmp.Ordered](n int, a T, more ...T) T {
	least, greatest := ends(a, more)
	return either(n, greatest, least)
}

func ends[T cmp.Ordered](a T, more []T) (least, greatest T) {
	least, greatest = a, a
	for _, b := range more {
		least, greatest = min(least, b), max(greatest, b)
	}
	return least, greatest
}
