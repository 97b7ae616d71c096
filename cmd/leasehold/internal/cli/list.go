package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// listFlags are the flags of `leasehold list`.
type listFlags struct {
	*global
	color string
}

func newList(g *global) *cobra.Command {
	f := &listFlags{global: g}
	cmd := &cobra.Command{
		Use:   "list [PREFIX]",
		Short: "List the locks that are held or waited for",
		Long: `List the locks whose name begins with PREFIX and that are held, waited for, or
closed for a while. The table fits the width of the terminal. With --json every lock
is one line, as from "inspect".

On Redis a plain key of another library is shown as "foreign": every string with an
expiry that the prefix of the store or PREFIX selects, never its value.`,
		Example: `  leasehold list
  leasehold list orders/
  leasehold list --json | jq -r .key`,
		Args: atMost(1),
		RunE: g.withClient(f.list),
	}
	cmd.Flags().StringVar(&f.color, "color", "auto", "colours, `auto|always|never`; auto is on a terminal, unless $NO_COLOR is set")
	return cmd
}

func (f *listFlags) list(cmd *cobra.Command, args []string, client *leasehold.Client) error {
	screen, err := newScreen(cmd.OutOrStdout(), f.color)
	if err != nil {
		return err
	}
	prefix := append(args, "")[0]
	locks, damaged, err := snapshots(cmd.Context(), client, prefix)
	if err != nil {
		return err
	}
	if damaged == nil || len(locks) > 0 { // a damaged record may be a held lock
		if err := f.print(cmd, screen, prefix, locks); err != nil {
			return err
		}
	}
	return damaged
}

func (f *listFlags) print(cmd *cobra.Command, screen *screen, prefix string, locks []driver.Snapshot) error {
	if f.json {
		for _, s := range locks {
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(wire.LockOf(s)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(locks) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), f.none(prefix))
		return nil
	}
	rows := [][]string{{"NAME", "KIND", "HELD BY", "FOR", "LEASE ENDS IN", "WAITING"}}
	for _, s := range locks {
		rows = append(rows, row(s))
	}
	return screen.table(rows, columnsThatShrink)
}

// none returns the message for an empty list.
func (f *listFlags) none(prefix string) string {
	if prefix == "" && stores.AmongOthers(f.used) {
		return "no lock of Leasehold is held or waited for; plain keys of other libraries are shown under a prefix: leasehold list PREFIX"
	}
	return "no lock is held or waited for"
}

// columnsThatShrink are cut, in this order, where a table is wider than the terminal.
var columnsThatShrink = []int{0, 2}

// snapshots inspects each lock. Each snapshot is consistent, but they are not of one moment.
// A damaged record does not stop the list: damaged joins the errors of all such records.
func snapshots(ctx context.Context, client *leasehold.Client, prefix string) (locks []driver.Snapshot, damaged, err error) {
	var keys []string
	for key, err := range client.Keys(ctx, prefix) {
		if err != nil {
			return nil, nil, err
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		s, err := client.Inspect(ctx, key)
		if errors.Is(err, leasehold.ErrMismatch) {
			damaged = oneline.Join(damaged, err)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if len(s.Holders)+len(s.Waiters) > 0 || s.Closed > 0 {
			locks = append(locks, s) // the other locks were released after the listing
		}
	}
	return locks, damaged, nil
}

func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usage("%s takes at most %d argument, not %d", cmd.Name(), n, len(args))
		}
		return nil
	}
}
