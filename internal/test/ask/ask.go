// Package ask has calls of drivers for tests, also over connections that are cut.
package ask

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

// Mutex returns a request for a mutex.
func Mutex(key, id string) driver.Request {
	return driver.Request{Key: key, ID: id, TTL: time.Minute, ConfirmWindow: time.Second}
}

// Acquire makes a request, and ends the test if its answer has another state.
func Acquire(t testing.TB, d driver.Driver, req driver.Request, want driver.State) driver.Reply {
	t.Helper()
	reply, err := d.Acquire(t.Context(), req)
	if err != nil || reply.State != want {
		t.Fatalf("acquire %q by %s: %+v, %v; want state %v", req.Key, req.ID, reply, err, want)
	}
	return reply
}

// Release releases a lease that is live.
func Release(t testing.TB, d driver.Driver, key, id string) {
	t.Helper()
	if reply, err := d.Release(t.Context(), driver.Ref{Key: key, ID: id}); err != nil || reply.State != driver.Released {
		t.Fatalf("release %q by %s: %+v, %v", key, id, reply, err)
	}
}

// Renew renews leases and tickets, and fails the test unless each has one answer, with the state.
func Renew(t testing.TB, d driver.Driver, want driver.State, refs ...driver.Ref) {
	t.Helper()
	answers := 0
	d.Renew(t.Context(), refs, func(i int, reply driver.Reply, err error) {
		if answers++; err != nil || reply.State != want {
			t.Errorf("renew %q by %s: %+v, %v; want state %v", refs[i].Key, refs[i].ID, reply, err, want)
		}
	})
	if answers != len(refs) {
		t.Errorf("%d answers to a renewal of %d", answers, len(refs))
	}
}

// Holds reports whether the lease id is in the store, alone.
func Holds(t testing.TB, d driver.Driver, key, id string) bool {
	t.Helper()
	inspector, _ := driver.As[driver.Inspector](d)
	snap, err := inspector.Inspect(t.Context(), key)
	NoError(t, err)
	return len(snap.Holders) == 1 && snap.Holders[0].ID == id
}

// NoError ends the test if there is an error.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Findings returns the worst finding of each check.
func Findings(t testing.TB, d driver.Driver) map[string]driver.Finding {
	t.Helper()
	checker, _ := driver.As[driver.Checker](d)
	report, err := checker.Check(t.Context())
	NoError(t, err)
	all := make(map[string]driver.Finding)
	for _, f := range report.Findings {
		if worst, ok := all[f.Check]; !ok || f.Severity > worst.Severity {
			all[f.Check] = f
		}
	}
	return all
}

// Finds fails the test unless the worst finding of a check has the severity and the text.
func Finds(t testing.TB, d driver.Driver, check string, want driver.Severity, text string) {
	t.Helper()
	f, ok := Findings(t, d)[check]
	if !ok || f.Severity != want || !strings.Contains(f.What+f.Why+f.Remedy, text) {
		t.Errorf("%s: %+v; want severity %v and %q", check, f, want, text)
	}
}

// Cuts cut the connection of a request: before the look at a record, before a record is made, and after
// a record was made or released, so that the answer is lost.
type Cuts struct {
	Look, Make, Made, Released func() *tcpproxy.Cut
	// Ready waits until the store is connected again; nil if that needs no wait.
	Ready func()
}

// Play makes calls of d and cuts its connections, and sees by other what the calls have done. An error may match
// driver.ErrUnavailable only if the call had no effect. A repeated call must get the answer of the first one.
func (c Cuts) Play(t *testing.T, d, other driver.Driver) {
	ready := func() {
		if c.Ready != nil {
			c.Ready()
		}
	}
	for _, row := range []struct {
		key             string
		cut             func() *tcpproxy.Cut
		definite, there bool // certainly without an effect; the lease is in the store
	}{
		{"before-the-look", c.Look, true, false},
		{"before-the-change", c.Make, false, false},
		{"after-the-change", c.Made, false, true},
	} {
		ready()
		cut := row.cut()
		_, err := d.Acquire(t.Context(), Mutex(row.key, "a"))
		<-cut.Fired()
		if err == nil || errors.Is(err, driver.ErrUnavailable) != row.definite || errors.Is(err, driver.ErrPermanent) {
			t.Errorf("%s: %v; definite: want %t", row.key, err, row.definite)
		}
		if got := Holds(t, other, row.key, "a"); got != row.there {
			t.Errorf("%s: the lease is there: %t", row.key, got)
		}
		ready()
		if again := Acquire(t, d, Mutex(row.key, "a"), driver.Granted); again.Replayed != row.there {
			t.Errorf("%s, asked again: %+v", row.key, again)
		}
	}
	Acquire(t, d, Mutex("k", "a"), driver.Granted)
	cut := c.Released()
	_, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"})
	<-cut.Fired()
	if err == nil || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a release: %v", err)
	}
	Acquire(t, other, Mutex("k", "b"), driver.Granted)
	ready()
	if reply, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"}); err != nil || reply.State != driver.Gone || !Holds(t, d, "k", "b") {
		t.Errorf("a release again, and the next holder: %+v, %v", reply, err)
	}
}
