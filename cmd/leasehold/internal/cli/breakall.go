package cli

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

// selection are the flags of `leasehold break` that select leases of many locks.
type selection struct {
	prefix, host, owner string
	yes                 bool
}

var selectors = []string{"prefix", "host", "owner"}

func (s *selection) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.prefix, "prefix", "", "break the leases of all locks whose name begins with `P`")
	flags.StringVar(&s.host, "host", "", "break the leases of holders on the host `H`, as inspect and their default owner show it")
	flags.StringVar(&s.owner, "owner", "", "break the leases of the owner `O`, with any random part behind a slash")
	flags.BoolVarP(&s.yes, "yes", "y", false, "break the leases that --prefix, --host and --owner select, without asking")
}

// selected reports whether the call selects leases by flags.
func (s *selection) selected(cmd *cobra.Command) bool {
	return slices.ContainsFunc(selectors, cmd.Flags().Changed)
}

// check refuses a name or --force-holder next to a selection, and an empty value, which would
// select everything: it may come from a variable that is not set.
func (s *selection) check(cmd *cobra.Command, args []string) error {
	for _, name := range selectors {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return usage("--%s is empty; leave it out, or set the variable from which it comes", name)
		}
	}
	if len(args) > 0 || cmd.Flags().Changed("force-holder") {
		return usage("--prefix, --host and --owner select leases; they exclude the name of a lock and --force-holder")
	}
	return nil
}

// selects reports whether a holder matches. Without labels the host is known by the default
// owner, HOST:PROCESS. No break ends a foreign key.
func (s *selection) selects(h driver.Holder) bool {
	onHost := s.host == "" || h.Labels[labelHost] == shortened(s.host) || strings.HasPrefix(h.Owner, s.host+":")
	ofOwner := s.owner == "" || h.Owner == s.owner || strings.HasPrefix(h.Owner, s.owner+"/")
	return !h.Foreign && onHost && ofOwner
}

// breakAll breaks the leases that the flags select, one after the other, each by its id.
func (f *breakFlags) breakAll(cmd *cobra.Command, client *leasehold.Client) error {
	locks, damaged, err := snapshots(cmd.Context(), client, f.prefix)
	if err != nil {
		return err
	}
	var found []driver.Snapshot // each with one holder
	for _, s := range locks {
		for _, h := range s.Holders {
			if f.selects(h) {
				found = append(found, driver.Snapshot{Key: s.Key, Holders: []driver.Holder{h}})
			}
		}
	}
	if len(found) == 0 {
		return cmp.Or(damaged, fmt.Errorf("no lease is selected: %w", leasehold.ErrNotHeld))
	}
	if !f.yes {
		if err := f.preview(cmd, found); err != nil {
			return err
		}
	}
	if err := f.reasoned(); err != nil {
		return err
	}
	if !f.yes {
		if err := f.ask(cmd, len(found)); err != nil {
			return err
		}
	}
	return cmp.Or(f.breakEach(cmd, client, found), damaged)
}

// preview prints the leases that would be broken.
func (f *breakFlags) preview(cmd *cobra.Command, found []driver.Snapshot) error {
	rows := [][]string{{"NAME", "HELD BY", "HOST", "FOR", "LEASE"}}
	for _, s := range found {
		h := s.Holders[0]
		rows = append(rows, []string{printable(s.Key), ownerName(h.Owner, false), printable(cmp.Or(h.Labels[labelHost], "-")), span(age(h.Since)), h.ID})
		if f.json {
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(f.selectedLease(s, "", "")); err != nil {
				return err
			}
		}
	}
	if f.json {
		return nil
	}
	screen, err := newScreen(cmd.OutOrStdout(), "never")
	if err != nil {
		return err
	}
	return screen.table(rows, columnsThatShrink)
}

// ask returns nil if a person at a terminal agrees.
func (f *breakFlags) ask(cmd *cobra.Command, n int) error {
	in, ok := cmd.InOrStdin().(*os.File)
	if f.json || !ok || !term.IsTerminal(int(in.Fd())) {
		return usage("no lease was broken: --yes breaks %s", plural(n, "lease"))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Break %s? [y/N] ", plural(n, "lease"))
	answer, _ := bufio.NewReader(in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return usage("no lease was broken")
	}
	return nil
}

// breakEach breaks each lease and prints the outcome as soon as it is known. The error has the
// exit code of the first failure.
func (f *breakFlags) breakEach(cmd *cobra.Command, client *leasehold.Client, found []driver.Snapshot) error {
	var ended, gone, failed int
	var longest time.Duration
	var first error
	for _, s := range found {
		h := s.Holders[0]
		err := client.Break(cmd.Context(), s.Key, h.ID, f.reason)
		outcome, text := "broken", ""
		switch {
		case err == nil:
			ended, longest = ended+1, max(longest, h.Remaining)
		case errors.Is(err, leasehold.ErrNotHeld):
			gone, outcome = gone+1, "gone"
		default:
			failed, outcome, first = failed+1, "failed", cmp.Or(first, err)
			text = strings.TrimPrefix(err.Error(), "leasehold: ")
		}
		if err := f.report(cmd, s, outcome, text); err != nil {
			return err
		}
	}
	if !f.json {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %d broken, %d had ended, %d failed\n", plural(len(found), "lease"), ended, gone, failed)
		if ended > 0 {
			fmt.Fprint(cmd.OutOrStdout(), learns(longest))
		}
	}
	switch {
	case failed > 0:
		return &exitError{code: codeOf(first), err: fmt.Errorf("%d of %s could not be broken, or it is unknown whether they were", failed, plural(len(found), "lease"))}
	case ended == 0:
		return fmt.Errorf("every lease had ended: %w", leasehold.ErrNotHeld)
	}
	return nil
}

// report prints the outcome of one lease.
func (f *breakFlags) report(cmd *cobra.Command, s driver.Snapshot, outcome, failure string) error {
	h, text := s.Holders[0], printable(failure)
	switch outcome {
	case "broken":
		text = fmt.Sprintf("%s: broke lease %s%s", printable(s.Key), h.ID, ofHolder(h))
	case "gone":
		text = fmt.Sprintf("%s: lease %s of %s had ended", printable(s.Key), h.ID, ownerName(h.Owner, false))
	}
	return f.printResult(cmd.OutOrStdout(), f.selectedLease(s, outcome, failure), text+"\n")
}

func (f *breakFlags) selectedLease(s driver.Snapshot, outcome, failure string) broken {
	h := s.Holders[0]
	return broken{
		Key: s.Key, Lease: h.ID, Owner: h.Owner, Token: h.Token, Reason: f.reason, Outcome: outcome, Error: failure,
	}
}
