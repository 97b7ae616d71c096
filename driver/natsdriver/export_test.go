package natsdriver

import (
	"fmt"
	"testing"
)

// Server returns the URL of the server that the tests share.
func Server() string {
	url, _ := one(failing{})
	return url
}

// failing is the test of an example.
type failing struct{ testing.TB }

func (failing) Helper()           {}
func (failing) Fatal(args ...any) { panic(args) }
func (failing) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
