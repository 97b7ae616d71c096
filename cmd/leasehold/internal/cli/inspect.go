package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/wire"
)

func newInspect(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect NAME",
		Short: "Show the holders and waiters of a lock",
		Long: `Show one consistent picture of a lock: its holders with lease, token and labels,
and its waiters in the order in which they will be served.

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
