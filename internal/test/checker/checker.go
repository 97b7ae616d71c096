// Package checker checks histories of locks (package history). It decides whether the promises
// allow the observations that many clients made during faults.
//
// It checks in two ways. Models of the lease lock with tokens, of the
// read-write lock and of the semaphore are searched for an order in which one
// lock could have done everything (linearizability). Invariants need no search
// and name the fault: leases do not overlap, tokens rise, the register
// rejects every stale write, waiters are served in order of arrival, waits end, refusals
// name a live holder, losses are reported, and no keys or goroutines are left.
//
// A lock is not blamed for a store that cannot keep a promise, and that is the only exception:
// after a fault that made the store forget, two leases may overlap. Their tokens must still
// rise, and the loss must be reported within one time to live.
package checker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/history"
)

// The rules. These names appear in violations.
const (
	Exclusion = "exclusion" // P1: two leases that conflict are live at once
	Loss      = "loss"      // P2: a loss was not reported, or too late
	FalseLoss = "false loss"
	Tokens    = "tokens"  // P4: a token does not rise, or repeats
	Fence     = "fence"   // P4: a stale write was accepted, or a fresh one refused
	Wait      = "wait"    // P5: a wait did not end in time
	Order     = "order"   // P6: a waiter was overtaken
	Refusal   = "refusal" // P7, P8: a refusal names an impossible holder
	Left      = "left"    // P9: keys or goroutines stayed
	Model     = "model"   // no order explains the observations
	Shape     = "shape"   // the history contradicts itself
)

// Violation is an observation that a promise does not allow.
type Violation struct {
	Rule string
	Text string
}

func (v Violation) String() string { return v.Rule + ": " + v.Text }

// Verdict is the result of a check.
type Verdict struct {
	Violations []Violation
	// Attempts ended as Grants, Refusals (the lock was held) or Unserved (unknown,
	// unavailable, or any other error), or did not end because of a kill.
	Attempts, Grants, Refusals, Unserved int
	// Losses counts leases whose end was reported to their holder. Writes and Stale
	// count the writes to the register that were accepted and rejected.
	Losses, Writes, Stale int
	// Excused counts overlaps of two leases that a forgetful store caused.
	Excused int
	// Behind counts leases granted by a server that was being replaced.
	Behind int
	// Ordered counts the waits whose place in the queue could be checked.
	Ordered int
	// Operations counts the searched operations, Unsearched the operations above the limit.
	Operations, Unsearched int
	// Faults counts the faults by name.
	Faults map[string]int
}

// Judge checks a history against the promises.
func Judge(rules history.Rules, records []history.Record) *Verdict {
	j := &judge{rules: rules, records: records, Verdict: &Verdict{Faults: make(map[string]int)}}
	j.assemble()
	for _, key := range slices.Sorted(maps.Keys(j.keys)) {
		lives := j.keys[key]
		slices.SortFunc(lives, func(a, b *life) int { return cmp.Compare(a.ask.At, b.ask.At) })
		leases := slices.DeleteFunc(slices.Clone(lives), func(l *life) bool { return l.got == nil })
		j.exclusion(key, slices.Clone(leases))
		inOrder := j.tokens(key, slices.Clone(leases))
		j.fence(key, leases)
		j.losses(key, leases)
		j.order(key, lives)
		j.prompt(key, lives, leases)
		j.refusals(key, lives, leases)
		if !j.rules.Quick {
			j.model(key, leases, inOrder)
		}
	}
	j.ends()
	return j.Verdict
}

// judge is the state of one check.
type judge struct {
	*Verdict
	rules   history.Rules
	records []history.Record
	lives   map[string]*life   // by attempt
	keys    map[string][]*life // by key
	said    map[string]bool    // processes that ended properly

	forgets []history.Record    // faults of that kind
	shadows shadows             // of faults that concern all processes
	own     map[string]*shadows // of faults of one process
	every   shadows             // of all faults
}

// limit bounds the violations that are printed per rule.
const limit = 20

func (j *judge) violate(rule, format string, args ...any) {
	n := 0
	for _, v := range j.Violations {
		if v.Rule == rule {
			n++
		}
	}
	if n < limit {
		j.Violations = append(j.Violations, Violation{rule, fmt.Sprintf(format, args...)})
	}
}

// String formats the verdict for people.
func (v *Verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d attempts: %d granted, %d refused, %d unserved; %d losses reported\n",
		v.Attempts, v.Grants, v.Refusals, v.Unserved, v.Losses)
	fmt.Fprintf(&b, "%d writes accepted, %d stale writes refused; %d places in queues checked; %d operations searched, %d not\n",
		v.Writes, v.Stale, v.Ordered, v.Operations, v.Unsearched)
	if v.Excused+v.Behind > 0 {
		fmt.Fprintf(&b, "%d meetings of two leases because the store forgot, %d leases granted by a server that was being replaced\n", v.Excused, v.Behind)
	}
	total := 0
	var list []string
	for _, name := range slices.Sorted(maps.Keys(v.Faults)) {
		total += v.Faults[name]
		list = append(list, fmt.Sprintf("%s %d", name, v.Faults[name]))
	}
	fmt.Fprintf(&b, "%d faults: %s\n", total, strings.Join(list, ", "))
	fmt.Fprintf(&b, "%d violations", len(v.Violations))
	for _, violation := range v.Violations {
		fmt.Fprintf(&b, "\n  %s", violation)
	}
	return b.String()
}

// Rules returns the violated rules, each once.
func (v *Verdict) Rules() []string {
	var rules []string
	for _, violation := range v.Violations {
		rules = append(rules, violation.Rule)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

func seconds(ns int64) string { return time.Duration(ns).Round(time.Microsecond).String() }
