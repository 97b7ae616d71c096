package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

// breakFlags are the flags of `leasehold break`.
type breakFlags struct {
	*global
	reason string
	force  bool
	selection
}

func newBreak(g *global) *cobra.Command {
	f := &breakFlags{global: g}
	cmd := &cobra.Command{
		Use:   "break {NAME [ID] | --prefix P | --host H | --owner O} --reason TEXT",
		Short: "End a lease, a place in the queue, or many leases by force",
		Long: strings.TrimSpace(fmt.Sprintf(`
Break ends the lease ID of the lock NAME, and no other. If it has already ended,
break changes nothing and the exit code is %d. "leasehold inspect NAME" shows the ids.
Without ID, break shows the holder and changes nothing, unless --force-holder selects
the present holder.

--prefix, --host and --owner select the leases of every holder that matches all of
them, and no places in the queue. Break lists the leases and asks, or breaks them with
--yes. Each is broken by its id, so a lease that was taken since is safe. The exit code
is %d if there is none, and %d if some could not be broken.

The holder gets the reason at once if it uses the library or this command and has
held a lease for a second; otherwise by its next renewal, within a third of its time
to live. Until then it overlaps with the next holder. "leasehold run" ends its
command. Break only leases of dead holders, or of holders whose writes are fenced.
`, codeNotThere, codeNotThere, codeUnavailable)),
		Example: `  leasehold break nightly-backup CFAJ5GSVHQKBXQPZ3Y5TQDO2AK --reason "host db3 is gone"
  leasehold break nightly-backup --force-holder --reason "host db3 is gone"
  leasehold break --prefix orders/ --host db3 --reason "host db3 is gone"`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.selected(cmd):
				return f.check(cmd, args)
			case len(args) < 1 || len(args) > 2:
				return usage("break takes the name of a lock and the id of a lease, or --prefix, --host or --owner")
			case len(args) > 1 && f.force: // also an empty id, of a variable that is not set
				return usage("--force-holder selects the present holder; it excludes the id %q", args[1])
			}
			return nil
		},
		RunE: g.withClient(f.run),
	}
	cmd.Flags().StringVar(&f.reason, "reason", "", "reason for the holder, `TEXT`")
	cmd.Flags().BoolVar(&f.force, "force-holder", false, "break the lease of the present holder")
	f.register(cmd)
	return cmd
}

func (f *breakFlags) run(cmd *cobra.Command, args []string, client *leasehold.Client) error {
	if len(args) == 0 {
		return f.breakAll(cmd, client)
	}
	name, id := args[0], append(args, "")[1]
	s, err := client.Inspect(cmd.Context(), name)
	if err != nil {
		return err
	}
	if s.Key = name; id == "" {
		if id, err = f.holder(cmd, s); err != nil {
			return err
		}
	}
	if err := f.reasoned(); err != nil {
		return err
	}
	if err := client.Break(cmd.Context(), name, id, f.reason); err != nil {
		return err
	}
	return f.tell(cmd, s, id)
}

func (f *breakFlags) reasoned() error {
	if f.reason == "" {
		return usage("break takes --reason, which is sent to the holder")
	}
	return nil
}

// holder returns the id of the only holder, if the flags ask for that.
func (f *breakFlags) holder(cmd *cobra.Command, s driver.Snapshot) (string, error) {
	switch n := len(s.Holders); {
	case n == 0:
		return "", fmt.Errorf("lock %q: %w: nobody holds it", s.Key, leasehold.ErrNotHeld)
	case !f.force:
		show(cmd.OutOrStdout(), s)
		return "", usage("no lease was broken: name the id of a lease, or give --force-holder")
	case n > 1:
		show(cmd.OutOrStdout(), s)
		return "", usage("no lease was broken: lock %q has %d holders; name the id of one", s.Key, n)
	}
	if s.Holders[0].Foreign {
		return "", usage("no lease was broken: lock %q is a plain key of another library or program, which no break ends; end that program, or delete the key with the tools of its store", s.Key)
	}
	return s.Holders[0].ID, nil
}

// broken describes a lease that was broken, as JSON.
type broken struct {
	Key    string `json:"key"`
	Lease  string `json:"leaseId"`
	Owner  string `json:"owner"`
	Token  int64  `json:"token,omitempty"` // zero for a place in the queue
	Reason string `json:"reason"`
	// Outcome is "broken", "gone" or "failed", and Error the reason of a failure, if several
	// leases were selected.
	Outcome string `json:"outcome,omitempty"`
	Error   string `json:"error,omitempty"`
}

func (f *breakFlags) tell(cmd *cobra.Command, s driver.Snapshot, id string) error {
	b := broken{Key: s.Key, Lease: id, Reason: f.reason}
	of, then := "", "" // stay empty if the lease is newer than the snapshot
	for _, h := range s.Holders {
		if h.ID == id {
			b.Owner, b.Token = cmp.Or(h.Owner, ownerName("", h.Foreign)), h.Token
			of, then = ofHolder(h), learns(h.Remaining)
		}
	}
	for _, q := range s.Waiters {
		if q.ID == id {
			b.Owner = q.Owner
			of = fmt.Sprintf(" of %s, which waited for %s", printable(q.Owner), span(age(q.Since)))
		}
	}
	return f.printResult(cmd.OutOrStdout(), b, fmt.Sprintf("%s: broke lease %s%s\n%s", printable(s.Key), id, of, then))
}

func ofHolder(h driver.Holder) string {
	return fmt.Sprintf(" of %s, token %d, held for %s", ownerName(h.Owner, h.Foreign), h.Token, span(age(h.Since)))
}

// learns is a line about when a holder learns of the break of a lease that had the given time left.
func learns(remaining time.Duration) string {
	return fmt.Sprintf("  a holder learns of it at once if it listens, else by its next renewal, in %s at the latest; until then it overlaps with the next one\n", span(remaining))
}
