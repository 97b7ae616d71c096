package cli

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

// electFlags are the flags of `leasehold elect`.
type electFlags struct {
	runFlags
	value  string
	leader bool
}

// labelValue is the label with the value of a leader, as in the library's Election.
const labelValue = "leasehold.value"

func newElect(g *global) *cobra.Command {
	f := &electFlags{runFlags: runFlags{lockFlags: newLockFlags(g), onLost: "kill"}}
	f.maxOutage, f.election = -1, true
	cmd := &cobra.Command{
		Use:   "elect [flags] NAME [--] COMMAND [ARG...]",
		Short: "Run a command while leading, and again whenever leadership returns",
		Long: strings.TrimSpace(`
Elect waits until it leads the election NAME, and runs COMMAND while it leads, as
"leasehold run" does. If the leadership is lost, elect ends COMMAND and campaigns
again. If COMMAND ends by itself or by a signal, elect ends with its exit code. It
waits for a store that does not answer, without a time limit.

Each term has its own fencing token, greater than the tokens of all earlier terms.

With --leader it prints the text that the leader has published with --value, or else
the leader's owner; with --json the whole record of the leader.
`),
		Example: `  leasehold elect --value "$HOSTNAME:8080" scheduler -- ./scheduler
  leasehold elect --leader scheduler`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.leader && len(args) != 1:
				return usage("elect --leader takes the name of an election, and no more; flags stand before the name")
			case f.leader:
				return g.withClient(f.printLeader)(cmd, args)
			}
			if f.value != "" {
				f.labels = append(f.labels, labelValue+"="+f.value)
			}
			c, err := f.runCommand(cmd, args)
			if err != nil {
				return err
			}
			return c.lead(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // the arguments after NAME belong to the command
	flags.SortFlags = false
	flags.StringVar(&f.value, "value", "", "published to other processes, such as an address, `TEXT`")
	flags.BoolVar(&f.leader, "leader", false, "print the leader, and run no command")
	f.registerCommand(cmd)
	f.registerHolder(cmd)
	flags.Lookup("owner").Usage = "shown as the leader, `NAME` and a random part of each term (default host and process)"
	flags.Lookup("reentrant-owner").Hidden = true // refused
	cmd.MarkFlagsMutuallyExclusive("leader", "value")
	return cmd
}

// campaignAgain is the pause before the next campaign while the store does not answer.
const campaignAgain = time.Second

// lead runs the command once for every term of leadership, until the command ends before the
// leadership is lost. Each campaign has its own owner: the store may still have the lease of
// the last term, and the same owner would re-enter that lease and get the old token.
func (c *runCommand) lead(ctx context.Context) error {
	defer c.report.lines.flush()
	for again := false; ; again, c.owner = true, newOwner(c.named) {
		err := c.run(ctx)
		var exit *exitError
		ended := errors.As(err, &exit) && (!exit.unopened || !again) // if the store was up before, it may come back
		switch {
		case ended && exit.lost:
			if exit.err != nil {
				c.report.say(c.report.lines.later, levelQuiet, event{Event: "lost", Key: c.names[0], Error: err.Error()}, "%v", err)
			}
			c.report.say(c.report.lines.later, levelNormal, event{Event: "campaigning", Key: c.names[0]}, "lock %q: campaigning again", c.names[0])
		case !ended && codeOf(err) == codeUnavailable && !errors.Is(err, driver.ErrPermanent): // err occurred before the command started
			c.report.say(c.report.lines.later, levelNormal, event{Event: "campaigning", Key: c.names[0], Error: err.Error()}, "%v; campaigning again", err)
			time.Sleep(campaignAgain)
		default:
			return err
		}
	}
}

// leaderView describes a leader as JSON.
type leaderView struct {
	Key   string    `json:"key"`
	Owner string    `json:"owner"`
	Value string    `json:"value"`
	Lease string    `json:"leaseId"`
	Token int64     `json:"token"`
	Since time.Time `json:"since,omitzero"` // by the leader's clock
}

func (f *electFlags) printLeader(cmd *cobra.Command, args []string, client *leasehold.Client) error {
	l, err := client.Election(args[0], "").Leader(cmd.Context())
	if err != nil {
		return err
	}
	return f.printResult(cmd.OutOrStdout(), leaderView{
		Key: args[0], Owner: l.Owner, Value: l.Value, Lease: l.ID, Token: l.Token, Since: l.Since,
	}, printable(cmp.Or(l.Value, l.Owner))+"\n")
}
