package live_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
)

// recorder records the reports of a helper to a test.
type recorder struct {
	testing.TB
	said string
}

func (*recorder) Helper()                   {}
func (r *recorder) Skip(args ...any)        { r.said = "skip" }
func (r *recorder) Logf(f string, a ...any) { r.said = "log " + fmt.Sprintf(f, a...) }
func (r *recorder) Errorf(f string, a ...any) {
	r.said = "error " + fmt.Sprintf(f, a...)
}

func TestLate_FailsNoTestOfTheRunner(t *testing.T) {
	for env, want := range map[string]string{"": "error late: 3s", "1": "error late: 3s", live.Runner: "log LATE: 3s"} {
		t.Setenv(live.Env, env)
		r := &recorder{TB: t}
		if live.Late(r, "%ds", 3); r.said != want {
			t.Errorf("with %q: %q, want %q", env, r.said, want)
		}
	}
}

func TestTest_SkipsWithoutTheEnvironment(t *testing.T) {
	t.Setenv(live.Env, "1")
	r := &recorder{TB: t}
	if live.Test(r); r.said != "" {
		t.Errorf("%q with %s=1", r.said, live.Env)
	}
	os.Unsetenv(live.Env)
	if live.Test(r); r.said != "skip" {
		t.Errorf("%q without %s", r.said, live.Env)
	}
}
