package drivertest_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// slow is a store that takes some time for an answer.
type slow struct {
	driver.Wrapper
	takes time.Duration
}

func (s slow) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	time.Sleep(s.takes / 2)
	defer time.Sleep(s.takes / 2)
	return s.Driver.Acquire(ctx, req)
}

func (s slow) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	time.Sleep(s.takes / 2)
	defer time.Sleep(s.takes / 2)
	s.Driver.Renew(ctx, refs, each)
}

func (s slow) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	time.Sleep(s.takes / 2)
	defer time.Sleep(s.takes / 2)
	return s.Driver.Release(ctx, ref)
}

// generous is a store that grants every request.
type generous struct{}

func (generous) Acquire(context.Context, driver.Request) (driver.Reply, error) {
	return driver.Reply{State: driver.Granted, Holds: 1}, nil
}

func (generous) Renew(_ context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	for i := range refs {
		each(i, driver.Reply{State: driver.Granted}, nil)
	}
}

func (generous) Release(context.Context, driver.Ref) (driver.Reply, error) {
	return driver.Reply{State: driver.Released}, nil
}

func (generous) Close() error { return nil }

// TestStore runs the suite on the store that the environment names: in a process of
// its own, since it may have to fail. The store takes its time in a bubble, where the
// suite measures it as it does in real time.
func TestStore(t *testing.T) {
	store := os.Getenv("DRIVERTEST_STORE")
	if store == "" {
		return
	}
	takes, err := time.ParseDuration(os.Getenv("DRIVERTEST_TAKES"))
	if err != nil {
		t.Fatal(err)
	}
	var right *memdriver.Driver
	open := func() driver.Driver { return right.Join() }
	without := drivertest.Feature(0)
	if store == "generous" {
		open = func() driver.Driver { return generous{} }
		without = drivertest.BeyondBasic
	}
	drivertest.Run(t, drivertest.Config{
		Open:    func(testing.TB) driver.Driver { return slow{driver.Wrapper{Driver: open()}, takes} },
		Without: without,
		Wrap: func(t *testing.T, row func(*testing.T)) {
			synctest.Test(t, func(t *testing.T) {
				right = memdriver.New()
				row(t)
			})
		},
	})
}

// results returns the rows of a run by their result: PASS, FAIL or SKIP.
type results map[string][]string

// suite runs the suite, or the rows of that name, on a store.
func suite(t *testing.T, store, takes, row string) (of results, output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestStore$/"+row)
	cmd.Env = append(os.Environ(), "DRIVERTEST_STORE="+store, "DRIVERTEST_TAKES="+takes)
	out, err := cmd.CombinedOutput()
	of = results{}
	for _, m := range regexp.MustCompile(`(?m)^    --- ([A-Z]+): TestStore/(\S+)`).FindAllStringSubmatch(string(out), -1) {
		of[m[1]] = append(of[m[1]], m[2])
	}
	if len(of) == 0 {
		t.Fatalf("no row was played:\n%s", out)
	}
	return of, regexp.MustCompile(`(?m)^ *(=== RUN|--- PASS|--- SKIP).*\n`).ReplaceAllString(string(out), ""), err
}

func TestRun_RightStorePassesHoweverSlow(t *testing.T) {
	quick, out, err := suite(t, "right", "0s", "")
	if err != nil {
		t.Fatalf("quickly: %v\n%s", err, out)
	}
	for _, takes := range []string{"20ms", "150ms"} {
		slowly, out, err := suite(t, "right", takes, "")
		if err != nil {
			t.Errorf("taking %s: %v, and these rows fail: %q\n%s", takes, err, slowly["FAIL"], out)
		}
		for _, result := range []string{"PASS", "SKIP"} {
			if !slices.Equal(slowly[result], quick[result]) {
				t.Errorf("taking %s: %s %q, want the rows of a quick store: %q", takes, result, slowly[result], quick[result])
			}
		}
	}
}

// Each of these rows asks before an expiry, so that a slow answer proves no fault at first.
func TestRun_WrongStoreFailsHoweverSlow(t *testing.T) {
	for _, takes := range []string{"0s", "150ms", "1s"} {
		of, out, _ := suite(t, "generous", takes, "^(lease|release)$")
		for _, row := range []string{"lease/does_not_expire_early", "lease/renewal_gives_the_full_time", "release/keeps_the_room_closed"} {
			if !slices.Contains(of["FAIL"], row) || strings.Contains(out, "not judged") {
				t.Errorf("taking %s, %s does not fail:\n%s", takes, row, out)
			}
		}
	}
}

func TestRun_StoreTooSlowToJudgeFails(t *testing.T) {
	for _, c := range []struct{ takes, row, says string }{
		{"7s", "^lease$/^does_not_expire_early$", "lease/does not expire early is not judged: the store took "},
		{"1s", "^key$/^any_name_is_a_room_of_its_own$", "its leases live for 1m0s"}, // of many answers
	} {
		of, out, _ := suite(t, "right", c.takes, c.row)
		if len(of["FAIL"]) != 1 || !strings.Contains(out, c.says) || !strings.Contains(out, "set Config.Advance, or run on a quieter machine") {
			t.Errorf("taking %s: %v, want %q\n%s", c.takes, of["FAIL"], c.says, out)
		}
	}
}
