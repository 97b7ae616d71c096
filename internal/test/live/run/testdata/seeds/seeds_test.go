// Package seeds has live tests whose outcomes the tests of package run know.
package seeds

import (
	"flag"
	"os"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
)

var starts = flag.String("seeds.starts", "", "the `prefix` of files, one for each test, to which it adds a byte when it starts")

// start marks a live test, and reports which of its runs begins: the first is 1.
func start(t *testing.T) int {
	t.Helper()
	file, err := os.OpenFile(*starts+t.Name(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("."); err != nil {
		t.Fatal(err)
	}
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Size())
}

// late reports a missed time bound in the first of the runs.
func late(t *testing.T, run int) {
	t.Helper()
	if run == 1 {
		live.Late(t, "%ds", 3)
	}
}

func TestInTime(t *testing.T) {
	live.Test(t)
	start(t)
	t.Log("in time")
}

func TestLateOnce(t *testing.T) {
	live.Test(t)
	late(t, start(t))
}

func TestLateOnceToo(t *testing.T) {
	live.Test(t)
	late(t, start(t))
}

func TestLateOnceInASubtest(t *testing.T) {
	live.Test(t)
	n := start(t)
	t.Run("row", func(t *testing.T) { late(t, n) })
}

func TestLateAgain(t *testing.T) {
	live.Test(t)
	if n := start(t); n == 1 || n == 3 {
		live.Late(t, "%ds", 3)
	}
}

func TestBroken(t *testing.T) {
	live.Test(t)
	start(t)
	t.Error("two holders")
}

func TestLateAndBroken(t *testing.T) {
	live.Test(t)
	late(t, start(t))
	t.Error("two holders")
}

func TestLateThenBroken(t *testing.T) {
	live.Test(t)
	n := start(t)
	if late(t, n); n == 4 {
		t.Error("two holders")
	}
}

func TestLateAndPanics(t *testing.T) {
	live.Test(t)
	late(t, start(t))
	panic("two panics")
}

func TestLateAndHangs(t *testing.T) {
	live.Test(t)
	late(t, start(t))
	select {}
}
