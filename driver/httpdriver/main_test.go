package httpdriver_test

import (
	"flag"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/leaktest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The cases wait most of the time, so more of them than cores may run.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	leaktest.Main(m)
}
