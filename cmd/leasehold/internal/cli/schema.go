package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
)

func newSchema(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the SQL that creates the table of a store",
		Long: strings.TrimSpace(`
Schema prints the statements that create the tables of a store on PostgreSQL or MySQL,
for a migration tool. It makes no connection, and prints the same if the tables exist.
Running the statements again changes nothing. The URL's options schema (PostgreSQL) and
table name the place. Other stores need no schema.

On PostgreSQL the role that runs the statements needs CREATE on the schema, or on the
database if the schema does not exist. The role of the programs then needs USAGE on the
schema and on the sequence TABLE_tokens. On both, the programs need SELECT, INSERT,
UPDATE and DELETE on the tables.
`),
		Example: `  leasehold schema --store postgres://db1/app > 0042_locks.sql
  leasehold schema --store "postgres:///app?schema=locks&table=jobs" | psql app`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			rawURL, err := g.storeURL()
			if err != nil {
				return err
			}
			sql, err := stores.Schema(rawURL)
			if err != nil {
				return err
			}
			return g.printResult(cmd.OutOrStdout(), map[string]string{"sql": sql}, sql)
		},
	}
}
