package filedriver

import (
	"os"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/leaktest"
)

// helper runs instead of the tests in a process that has its arguments in the environment.
var helper func(args []string)

const helperEnv = "FILEDRIVER_TEST_HELPER"

func TestMain(m *testing.M) {
	if args := os.Getenv(helperEnv); args != "" {
		helper(strings.Split(args, "\n"))
		return
	}
	leaktest.Main(m)
}
