// Package checker judges histories of locks (package history): whether what
// many clients saw, while they and their store suffered, is what the promises
// allow.
//
// Two kinds of judgement are made. Models of the lease lock with tokens, of the
// read-write lock and of the semaphore are searched for an order in which one
// lock could have done everything (linearizability). Invariants need no search
// and say what is wrong: no overlap of beliefs, tokens that rise, a register
// that refuses every stale write, arrival order, waits that end, refusals that
// name a live holder, losses that are told, and nothing left.
//
// What a store cannot keep is not held against the lock, but nothing else is
// forgiven: after a fault that made the store forget, two leases may meet, and
// are then held to tokens that rise and to a loss that is told within one time
// to live.
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

// The rules, by the names that violations carry.
const (
	Exclusion = "exclusion" // P1: two leases that conflict are believed in at once
	Loss      = "loss"      // P2: a loss was not told, or told too late
	FalseLoss = "false loss"
	Tokens    = "tokens"  // P4: a token does not rise, or repeats
	Fence     = "fence"   // P4: a stale write was accepted, or a fresh one refused
	Wait      = "wait"    // P5: a wait did not end in time
	Order     = "order"   // P6: somebody was overtaken
	Refusal   = "refusal" // P7, P8: a refusal names who cannot have been inside
	Left      = "left"    // P9: keys or goroutines stayed
	Model     = "model"   // no order explains what was seen
	Shape     = "shape"   // the history contradicts itself
)

// Violation is something that a promise does not allow.
type Violation struct {
	Rule string
	Text string
}

func (v Violation) String() string { return v.Rule + ": " + v.Text }

// Verdict is what was found.
type Verdict struct {
	Violations []Violation
	// Attempts ended as: Grants, Refusals (held by others), Unserved (unknown,
	// unavailable, or any other error), or not at all, because of a kill.
	Attempts, Grants, Refusals, Unserved int
	// Losses are leases whose end was told to their holder, Writes and Stale
	// the writes to the register that were accepted and refused.
	Losses, Writes, Stale int
	// Excused counts meetings of two leases of which a forgetful store was the
	// cause.
	Excused int
	// Behind counts leases that a server granted which was being replaced.
	Behind int
	// Ordered counts the waits whose place in the queue could be judged.
	Ordered int
	// Operations were searched for an order, Unsearched were too many.
	Operations, Unsearched int
	// Faults counts them by name.
	Faults map[string]int
}

// Judge holds a history against the promises.
func Judge(h *history.History) *Verdict {
	j := &judge{history: h, Verdict: &Verdict{Faults: make(map[string]int)}}
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
		j.model(key, leases, inOrder)
	}
	j.ends()
	return j.Verdict
}

// judge is one judgement.
type judge struct {
	*Verdict
	history *history.History
	lives   map[string]*life   // by attempt
	keys    map[string][]*life // by key
	said    map[string]bool    // processes that ended properly

	forgets []history.Record    // faults of that kind
	shadows shadows             // of faults that concern everybody
	own     map[string]*shadows // of faults of one process
	every   shadows             // of all faults
}

// limit bounds the violations of one rule that are told; one is enough to know.
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

// String tells the verdict to people.
func (v *Verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d attempts: %d granted, %d refused, %d unserved; %d losses told\n",
		v.Attempts, v.Grants, v.Refusals, v.Unserved, v.Losses)
	fmt.Fprintf(&b, "%d writes accepted, %d stale ones refused; %d places in queues judged; %d operations searched, %d not\n",
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

// Rules returns the rules that were violated, each once.
func (v *Verdict) Rules() []string {
	var rules []string
	for _, violation := range v.Violations {
		rules = append(rules, violation.Rule)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

func seconds(ns int64) string { return time.Duration(ns).Round(time.Microsecond).String() }
