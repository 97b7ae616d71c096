package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

func newWatch(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "watch NAME",
		Short: "Print a line whenever holders or waiters of a lock change",
		Long: strings.TrimSpace(`
Watch prints the holders and waiters of the lock NAME: at once, and after each
change, until it is interrupted. With --json every line is the output of "inspect"
with the time. It looks twice a second, and may miss a shorter state. If the store
does not answer at the start, watch fails. It reports a later outage, and asks again.
`),
		Example: `  leasehold watch nightly-backup
  leasehold watch nightly-backup --json | jq -r .holders[].owner`,
		Args: exactly(1, "the name of a lock"),
		RunE: g.withClient(g.watch),
	}
}

// watch returns when its output is closed, or if the first inspection fails. A
// signal ends the process.
func (g *global) watch(cmd *cobra.Command, args []string, client *leasehold.Client) error {
	out := cmd.OutOrStdout()
	var last, failure string
	for first := true; ; first = false {
		s, err := client.Inspect(cmd.Context(), args[0])
		s.Key = args[0]
		switch now := participants(s); {
		case err != nil && first:
			return err
		case err != nil:
			if text := err.Error(); text != failure {
				failure = text
				g.complain(cmd, classify(err))
			}
		case first || now != last || failure != "":
			last, failure = now, ""
			if err := g.change(out, s); err != nil {
				return err
			}
		}
		time.Sleep(pollInterval)
	}
}

func (g *global) change(w io.Writer, s driver.Snapshot) error {
	now := time.Now()
	return g.printResult(w, struct {
		Time time.Time `json:"time"`
		wire.Lock
	}{now, wire.LockOf(s)}, fmt.Sprintf("%s %s\n", now.Format(time.TimeOnly), summary(s)))
}
