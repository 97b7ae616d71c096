package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// age returns the time since a wall clock reading of another machine.
func age(since time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(time.Since(since), 0)
}

// ownerName returns the name of a holder or waiter in messages.
func ownerName(owner string, foreign bool) string {
	if foreign {
		return cmp.Or(printable(owner), "another program")
	}
	return cmp.Or(printable(owner), "others")
}

// printable replaces control characters in text of another program: a terminal could obey
// them.
func printable(text string) string {
	return strings.ReplaceAll(printableLines(text), "\n", "\uFFFD")
}

// printableLines is printable for text of several lines: an error may quote another program.
func printableLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, text)
}

// row returns a lock as a row of the table of "list".
func row(s driver.Snapshot) []string {
	owner, held, ends := "-", "", ""
	if s.Closed > 0 {
		owner = "closed for " + span(s.Closed)
	}
	if n := len(s.Holders); n > 0 {
		h := s.Holders[0]
		owner, held, ends = ownerName(h.Owner, h.Foreign), "-", span(h.Remaining)
		if !h.Since.IsZero() { // it is zero for a plain key of another library
			held = span(age(h.Since))
		}
		if h.Places != "" {
			owner += " in place " + string(h.Places)
		}
		if n > 1 {
			owner += fmt.Sprintf(" and %d more", n-1)
		}
	}
	return []string{printable(s.Key), kind(s), owner, held, ends, strconv.Itoa(len(s.Waiters))}
}

// kind describes how a lock is held: "2 of 3" counts the places of a semaphore.
func kind(s driver.Snapshot) string {
	taken := 0
	for _, h := range s.Holders {
		taken += max(h.Weight, 1)
	}
	switch {
	case s.Limit > 0:
		return fmt.Sprintf("%d of %d", taken, s.Limit)
	case len(s.Holders) == 0:
		return "-"
	case s.Holders[0].Foreign:
		return "foreign"
	case s.Holders[0].Mode == driver.Shared:
		return "read"
	}
	return "mutex"
}

// show prints a lock as text.
func show(w io.Writer, s driver.Snapshot) {
	fmt.Fprintf(w, "%s: %s\n", printable(s.Key), headline(s))
	for _, h := range s.Holders {
		ends := fmt.Sprintf("lease ends in %s unless renewed", span(h.Remaining))
		if h.Foreign && h.Remaining <= 0 { // stores return no key that has expired
			ends = "has no expiry and never ends by itself"
		}
		fmt.Fprintf(w, "  %s, %s\n", heldBy(h), ends)
		if h.Foreign { // its value may be a secret
			fmt.Fprintf(w, "    a plain key of another library or program: no lease id, no token\n")
			continue
		}
		fmt.Fprintf(w, "    lease %s, token %d%s\n", h.ID, h.Token, note(h))
		describe(w, h.Labels)
	}
	for _, q := range s.Waiters {
		fmt.Fprintf(w, "  %d. waits: %s for %s\n", q.Position, ownerName(q.Owner, false), span(age(q.Since)))
		describe(w, q.Labels)
	}
}

// describe prints the labels of the process first, then the labels of the user.
func describe(w io.Writer, labels map[string]string) {
	own := maps.Clone(labels)
	maps.DeleteFunc(own, func(name, _ string) bool { return slices.Contains(processLabels, name) })
	if host, pid := labels[labelHost], labels[labelPID]; host != "" || pid != "" {
		text := "    process " + cmp.Or(pid, "?") + " on " + cmp.Or(host, "?")
		if command := labels[labelCommand]; command != "" {
			text += ", runs " + command
		}
		fmt.Fprintln(w, printable(text))
	}
	if len(own) > 0 {
		var pairs []string
		for _, k := range slices.Sorted(maps.Keys(own)) {
			pairs = append(pairs, k+"="+own[k])
		}
		fmt.Fprintf(w, "    labels %s\n", printable(strings.Join(pairs, " ")))
	}
}

func headline(s driver.Snapshot) string {
	text := wire.LockOf(s).State
	if text == "closed" {
		text += " for another " + span(s.Closed)
	}
	if s.Limit > 0 {
		text += fmt.Sprintf(", limit %d", s.Limit)
	}
	if len(s.Holders) == 0 && s.Token > 0 {
		text += fmt.Sprintf(", last token %d", s.Token)
	}
	return text
}

// note describes the properties of a holder that differ from the usual ones.
func note(h driver.Holder) string {
	text := ""
	if h.Mode == driver.Shared {
		text += ", shared"
	}
	if h.Weight > 1 {
		text += fmt.Sprintf(", weight %d", h.Weight)
	}
	if h.Places != "" {
		text += ", place " + string(h.Places)
	}
	if !h.Confirmed {
		text += ", not yet confirmed"
	}
	return text
}

func heldBy(h driver.Holder) string {
	text := "held by " + ownerName(h.Owner, h.Foreign)
	if h.Since.IsZero() {
		return text
	}
	return text + " for " + span(age(h.Since))
}

// summary describes a lock in one line.
func summary(s driver.Snapshot) string {
	var holders, waiters []string
	for _, h := range s.Holders {
		text := ownerName(h.Owner, h.Foreign)
		if !h.Foreign {
			text += " (lease " + h.ID + ")"
		}
		holders = append(holders, text)
	}
	for _, q := range s.Waiters {
		waiters = append(waiters, ownerName(q.Owner, false))
	}
	text := printable(s.Key) + ": " + headline(s)
	if len(holders) > 0 {
		text += " by " + strings.Join(holders, ", ")
	}
	if len(waiters) > 0 {
		text += "; waiting: " + strings.Join(waiters, ", ")
	}
	return text
}

// participants lists holders and waiters, without values that change with time.
func participants(s driver.Snapshot) string {
	var b strings.Builder
	for _, h := range s.Holders {
		fmt.Fprintln(&b, h.ID, h.Token, h.Mode, h.Weight)
	}
	for _, w := range s.Waiters {
		fmt.Fprintln(&b, w.Position, w.ID)
	}
	fmt.Fprintln(&b, s.Limit, s.Closed > 0)
	return b.String()
}

// free reports whether the lock would be granted at once.
func free(s driver.Snapshot) bool {
	return len(s.Holders)+len(s.Waiters) == 0 && s.Closed == 0
}

// timeToFree returns the time after which the lock is free if no lease is renewed, or 0 if that
// is unknown.
func timeToFree(s driver.Snapshot) time.Duration {
	longest := s.Closed
	for _, h := range s.Holders {
		longest = max(longest, h.Remaining)
	}
	for _, w := range s.Waiters {
		longest = max(longest, w.Remaining)
	}
	return longest
}
