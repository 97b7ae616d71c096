package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

func newList(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "list [PREFIX]",
		Short: "List the locks that are held or waited for",
		Long: `List the locks whose name begins with PREFIX and that are held, waited for, or
closed for a while. With --json every lock is one line, as from "inspect".`,
		Example: `  leasehold list
  leasehold list orders/
  leasehold list --json | jq -r .key`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return classify(g.list(cmd, append(args, "")[0]))
		},
	}
}

func (g *global) list(cmd *cobra.Command, prefix string) error {
	client, err := g.client()
	if err != nil {
		return err
	}
	defer client.Close()
	locks, err := snapshots(cmd.Context(), client, prefix)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if g.json {
		for _, s := range locks {
			if err := json.NewEncoder(out).Encode(wire.LockOf(s)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(locks) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no lock is held or waited for")
		return nil
	}
	rows := [][]string{{"NAME", "HELD BY", "FOR", "LEASE ENDS IN", "WAITING"}}
	for _, s := range locks {
		rows = append(rows, row(s))
	}
	table(out, rows)
	return nil
}

// snapshots inspects each lock. Each picture is consistent, all of them together are not.
func snapshots(ctx context.Context, client *leasehold.Client, prefix string) ([]driver.Snapshot, error) {
	var keys []string
	for key, err := range client.Keys(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var locks []driver.Snapshot
	for _, key := range slices.Compact(keys) {
		s, err := client.Inspect(ctx, key)
		if err != nil {
			return nil, err
		}
		if len(s.Holders)+len(s.Waiters) > 0 || s.Closed > 0 {
			locks = append(locks, s) // the other locks were released meanwhile
		}
	}
	return locks, nil
}

func row(s driver.Snapshot) []string {
	waiting := strconv.Itoa(len(s.Waiters))
	if len(s.Holders) == 0 {
		state := "-"
		if s.Closed > 0 {
			state = "closed for " + span(s.Closed)
		}
		return []string{s.Key, state, "", "", waiting}
	}
	h := s.Holders[0]
	owner := ownerName(h.Owner, h.Foreign)
	if n := len(s.Holders) - 1; n > 0 {
		owner += fmt.Sprintf(" and %d more", n)
	}
	return []string{s.Key, owner, span(age(h.Since)), span(h.Remaining), waiting}
}

func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usage("%s takes at most %d argument, not %d", cmd.Name(), n, len(args))
		}
		return nil
	}
}
