// Package leaktest fails the tests of a package that leave goroutines behind.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long a goroutine may take to end after the last test. go-redis goes on
// dialling for half a second, and for five where nobody answers, after its client was
// closed; and a machine that is busy adds to that. It is used up only by what stays.
const patience = 30 * time.Second

// Main runs the tests of a package and ends the process, as a TestMain does. If all tests
// have passed, and goroutines are left that are not ignored, it says which, and fails.
func Main(m *testing.M, ignored ...goleak.Option) {
	os.Exit(end(m.Run(), func() error { return goleak.Find(ignored...) }, patience)) //nolint:forbidigo // it ends a test binary
}

// end returns the exit code of tests that ended with code. It looks again while something
// is left, for as long as it has patience.
func end(code int, left func() error, patience time.Duration) int {
	if code != 0 {
		return code
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := left()
		if err == nil {
			return 0
		}
		if time.Since(began) > patience {
			fmt.Fprintf(os.Stderr, "leaktest: all tests have passed, and after %v there is more: %v\n", patience, err)
			return 1
		}
	}
}
