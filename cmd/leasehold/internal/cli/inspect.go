package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

func newInspect(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect NAME",
		Short: "Show who holds a lock, since when, and who waits",
		Long: `Show one consistent picture of a lock: its holders with lease, token and labels,
and those who wait, in the order in which they will be served.

A lease that is renewed ends later than shown. Ages are by the holder's clock. A plain
key of another program may have no expiry: it never ends by itself, and its remainingMs
in --json is 0.`,
		Example: `  leasehold inspect nightly-backup
  leasehold inspect nightly-backup --json | jq .holders[0].owner`,
		Args: exactly(1, "the name of a lock"),
		RunE: g.withClient(g.inspect),
	}
}

func (g *global) inspect(cmd *cobra.Command, args []string, client *leasehold.Client) error {
	s, err := client.Inspect(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	s.Key = args[0]
	if g.json {
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(wire.LockOf(s))
	}
	show(cmd.OutOrStdout(), s)
	return nil
}

// show prints a lock as text.
func show(w io.Writer, s driver.Snapshot) {
	fmt.Fprintf(w, "%s: %s\n", printable(s.Key), headline(s))
	for _, h := range s.Holders {
		fmt.Fprintf(w, "  %s, %s\n", heldBy(h), whenItEnds(h))
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

// whenItEnds describes the remaining time of a holder.
func whenItEnds(h driver.Holder) string {
	if endless(h) {
		return "has no expiry and never ends by itself"
	}
	return fmt.Sprintf("lease ends in %s unless renewed", span(h.Remaining))
}

// endless reports whether a holder is a plain key without expiry: a store returns it with no
// remaining time, and does not return keys that have expired.
func endless(h driver.Holder) bool { return h.Foreign && h.Remaining <= 0 }

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
		fmt.Fprintf(w, "    labels %s\n", labelText(own))
	}
}

func headline(s driver.Snapshot) string {
	text := "free"
	switch {
	case len(s.Holders) > 0:
		text = "held"
	case s.Closed > 0:
		text = "closed for another " + span(s.Closed)
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
	if !h.Confirmed {
		text += ", not yet confirmed"
	}
	return text
}
