// Package drivertest is the conformance suite of lock stores.
//
// [Run] plays every law of package driver against a store, as several
// processes on it would. A wrapper of drivers is a driver and passes the same
// suite. A test of a store is this:
//
//	func TestConformance(t *testing.T) {
//		server := startServer(t)
//		drivertest.Run(t, drivertest.Config{
//			Open: func(t testing.TB) driver.Driver { return mystore.New(server.Addr()) },
//		})
//	}
//
// Each row of the suite is a subtest. If it fails, it prints why its law matters to
// programs that hold locks.
//
// # Time
//
// Many rows ask something of a lease before it expires, and after. On a store
// whose clock is held ([Config].Advance), or in a testing/synctest bubble
// ([Config].Wrap), every answer is certain and the suite takes little time.
//
// On a store in real time an answer is uncertain if it came too late: the lease
// may have expired by then. The row is then played again with durations twice as
// long, until the answers come in time. The shortest leases live for 200 ms at
// first and for 6.4 s at last. If the store is too slow for 6.4 s as well, the
// row fails. No row is skipped because the store, or the machine, is slow.
package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Config describes the store under test.
type Config struct {
	// Open returns a driver on the store. Every call returns another driver
	// on the same store, the way another process would have its own. Run
	// closes the drivers that it opened.
	Open func(t testing.TB) driver.Driver

	// Advance lets time pass in the store. The default is [time.Sleep], which
	// is right for real stores, and in a testing/synctest bubble. A store
	// with a clock of its own moves that clock, which must stand still
	// between two calls; the rows then run one after another, because they
	// share it.
	Advance func(d time.Duration)

	// Without names the features that the store lacks and does not claim to have.
	// Rows that need them are skipped; other rows check that the store refuses them.
	Without Feature

	// Wrap runs a row in surroundings of its own, such as
	// [testing/synctest.Test]; the rows then run one after another. The
	// default just calls row.
	Wrap func(t *testing.T, row func(t *testing.T))

	held bool // the store's clock moves by Advance alone
}

// Feature is a set of things that a store may legitimately lack.
type Feature uint

// Every store grants an exclusive lease in a free room, renews and releases it, and lets it
// expire. All other features are optional.
const (
	// Queue: tickets, kept in arrival order.
	Queue Feature = 1 << iota
	// Policies: all that differs from FIFO.
	Policies
	// Watch: [driver.Watcher], and hand-over by hints.
	Watch
	// Shared: [driver.Shared].
	Shared
	// Limits: Request.Limit and Weight.
	Limits
	// Downgrade: an exclusive lease that becomes shared.
	Downgrade
	// Resize: Request.Resize.
	Resize
	// Reentry: Request.Reenter.
	Reentry
	// Tokens: Reply.Token. Without it tokens are 0.
	Tokens
	// MinToken: Request.MinToken.
	MinToken
	// LockDelay: Request.LockDelay.
	LockDelay
	// KeepClosed: Ref.KeepClosed.
	KeepClosed
	// RejectIDFor: Ref.RejectIDFor. Without it an Acquire that arrives after the
	// release of its lease creates the lease again.
	RejectIDFor
	// Inspect: [driver.Inspector].
	Inspect
	// Break: [driver.Breaker].
	Break
	// Replayed: Reply.Replayed. Without it the answers to a first request and to its
	// repetition look the same.
	Replayed
	// Raise: Ref.Token.
	Raise
	// Guard: Request.Guard and [driver.Marker].
	Guard
	// Visits: Request.Visit and Ref.Visit. Without it a Release ends a lease
	// that another visit has asked for.
	Visits

	features = iota
)

// BeyondBasic is the set of features that a driver of [driver.FromBasic] lacks.
const BeyondBasic = Queue | Policies | Watch | Shared | Limits | Downgrade | Resize | Reentry | Tokens | MinToken | LockDelay | RejectIDFor |
	Inspect | Break | Raise | Guard | Visits

var featureNames = [features]string{
	"Queue", "Policies", "Watch", "Shared", "Limits", "Downgrade", "Resize", "Reentry", "Tokens", "MinToken", "LockDelay", "KeepClosed", "RejectIDFor",
	"Inspect", "Break", "Replayed", "Raise", "Guard", "Visits",
}

// String lists the features of the set.
func (f Feature) String() string {
	var names []string
	for i, name := range featureNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// row is one law.
type row struct {
	name  string
	needs Feature                     // skipped if the store is without any of these; a refusal if it has them
	why   string                      // explains a failure to the author of the store
	run   func(l *lab, p, q *process) // two processes on the store
}

// refusal reports whether the row tests stores without the features in needs.
func (r row) refusal() bool { return strings.HasPrefix(r.name, "refusal/") }

// Run plays all rows against the store, each as a subtest of t.
func Run(t *testing.T, cfg Config) {
	if cfg.Open == nil {
		t.Fatal("drivertest: Config.Open is nil")
	}
	alone := cfg.Advance != nil || cfg.Wrap != nil
	cfg.held = cfg.Advance != nil
	if !cfg.held {
		cfg.Advance = time.Sleep
	}
	if cfg.Wrap == nil {
		cfg.Wrap = func(t *testing.T, row func(t *testing.T)) { row(t) }
	}
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
			if missing := r.needs & cfg.Without; missing != 0 && !r.refusal() {
				t.Skipf("the store does without %v", missing) //nolint:forbidigo // the caller named it as missing
			}
			if present := r.needs &^ cfg.Without; present != 0 && r.refusal() {
				t.Skipf("the store has %v", present) //nolint:forbidigo // the row is about stores that lack it
			}
			if !alone {
				t.Parallel()
			}
			cfg.Wrap(t, func(t *testing.T) { play(t, cfg, r) })
		})
	}
}

// play plays the row until the store has answered in time.
func play(t *testing.T, cfg Config, r row) {
	var start time.Time // of the last attempt
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		t.Logf("why: %s", r.why)
		if took := time.Since(start); took >= long && !cfg.held {
			t.Logf("the row took %v, and its leases live for %v: set Config.Advance, or run on a quieter machine", took, long)
		}
	})
	for times := 1; ; times *= 2 {
		start = time.Now()
		if late := newLab(t, cfg, r.name, times).attempt(r); !late || t.Failed() {
			return
		}
	}
}

// rows returns the whole table.
func rows() []row {
	var all []row
	for _, group := range [][]row{
		leaseRows, releaseRows, errorRows, batchRows, tokenRows, raiseRows, guardRows, keyRows, reentryRows,
		queueRows, orderRows, handOverRows, deadRows, sharedRows, downgradeRows, limitRows, resizeRows,
		inspectRows, breakRows, watchRows, againRows, visitRows, checkRows, crowdRows, refusalRows,
	} {
		all = append(all, group...)
	}
	return all
}
