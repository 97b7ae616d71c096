package overview

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/leasehold-go/leasehold/driver"
)

// Flag is something odd about a lock.
type Flag struct {
	// Name is a word that does not change, as "stuck".
	Name string `json:"name"`
	// Severity is bad, warning or notice.
	Severity string `json:"severity"`
	// Text is the sentence that explains it.
	Text string `json:"text"`
}

func (f Flag) rank() int { return 1 + slices.Index([]string{"notice", "warning", "bad"}, f.Severity) }

// From when on something is odd.
const (
	longQueue   = 5
	manyLosses  = 3
	flappingFor = 10 * time.Minute
	mismatchFor = 10 * time.Minute
)

// judge returns what is odd about a lock.
func (e *entry) judge(log *journal, now time.Time) (flags []Flag) {
	add := func(name, severity, format string, args ...any) {
		flags = append(flags, Flag{name, severity, fmt.Sprintf(format, args...)})
	}
	for _, h := range e.snap.Holders {
		l := e.leases[h.ID]
		if h.Foreign && h.Remaining <= 0 {
			add("no-end", "bad", "The key has no end: it was not set by Leasehold, or not with an expiry. If its holder died, the lock stays closed until somebody breaks it.")
			break
		}
		// A lease that is renewed at a third of its life is never below a half of it.
		if l.renewals > 0 && h.Remaining < l.ttl*45/100 {
			add("renewal-missed", "bad", "%s has missed a renewal: %s of %s are left of its lease. If it does not renew it in this time it loses the lock.",
				orSomebody(h.Owner), span(h.Remaining), span(l.ttl))
			break
		}
	}
	if n, before := len(e.snap.Waiters), e.queue[0]; n >= longQueue && n >= 2*before && n-before >= longQueue-1 {
		add("queue-grows", "warning", "The queue grows: %d wait, and a minute ago it were %d. Work arrives faster than the lock is passed on, or the holder is stuck.", n, before)
	}
	if owner := e.ownWaiter(); owner != "" {
		add("waits-for-itself", "notice", "%s holds the lock and waits for it. If that is one task it waits for itself until its lease ends; two tasks of one process just take turns.", owner)
	}
	if n := log.lossesOf(e.key, now.Add(-flappingFor)); n >= manyLosses {
		add("flapping", "warning", "It was lost or broken %d times within 10 minutes: holders die, hang, or do not reach the store in time.", n)
	}
	if log.mismatchOf(e.key, now.Add(-mismatchFor)) {
		add("limits-differ", "warning", "A request asked for another limit than is in force, and was refused: two versions or configurations of a program disagree.")
	}
	return flags
}

// StoreFlags returns what is odd about all locks, since it is about their store: what
// its check called unsafe. To those who may not know its servers it says no more than
// that.
func (o *Overview) StoreFlags(inFull bool) []Flag {
	report, _, _ := o.health.get()
	flags := []Flag{}
	for _, f := range report.Findings {
		if f.Severity != driver.Unsafe {
			continue
		}
		if !inFull {
			return []Flag{{"store-unsafe", "bad", "The store is unsafe for locks: two may hold one, or none can be had. Those who run it see why under Health."}}
		}
		flags = append(flags, Flag{"store-unsafe", "bad", unsafe(f)})
	}
	return flags
}

// unsafe is a finding as one sentence, and what to do as another.
func unsafe(f driver.Finding) string {
	text := "The store is unsafe for locks: "
	if f.Subject != "" {
		text += f.Subject + ": "
	}
	text += f.What
	if f.Why != "" {
		text += ": " + f.Why
	}
	text = strings.TrimSuffix(text, ".") + "."
	if f.Remedy != "" {
		remedy := []rune(f.Remedy)
		text += " " + strings.TrimSuffix(string(unicode.ToUpper(remedy[0]))+string(remedy[1:]), ".") + "."
	}
	return text
}

// ownWaiter is an owner that holds the lock exclusively and waits for it, or waits for
// it exclusively.
func (e *entry) ownWaiter() string {
	for _, w := range e.snap.Waiters {
		if w.Owner == "" {
			continue
		}
		for _, h := range e.snap.Holders {
			if h.Owner == w.Owner && (h.Mode == driver.Exclusive || w.Mode == driver.Exclusive) {
				return w.Owner
			}
		}
	}
	return ""
}

func orSomebody(owner string) string {
	if owner == "" {
		return "The holder"
	}
	return owner
}

// span is a duration for people: two units at most.
func span(d time.Duration) string {
	switch {
	case d < time.Second: // up, so that nothing is "less than 0 ms"
		return fmt.Sprintf("%d ms", (d+time.Millisecond-1)/time.Millisecond)
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}
