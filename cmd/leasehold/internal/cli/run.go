package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/proc"
)

// runFlags are the flags of `leasehold run`.
type runFlags struct {
	lockFlags
	also     []string
	command  string
	grace    duration
	onLost   string
	onWanted signalName
	without  string // --if-unavailable: the action if the store is not available
	atLeast  duration
	atMost   duration
	auditLog auditLog
}

func newRun(g *global) *cobra.Command {
	f := &runFlags{lockFlags: newLockFlags(g)}
	cmd := &cobra.Command{
		Use:     "run [flags] NAME [--] COMMAND [ARG...]",
		Short:   "Run a command while holding a lock",
		Long:    runLong,
		Example: runExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			guard := proc.Prepare() // it starts in parallel with the rest of the preparation
			defer guard.Close()
			c, err := f.runCommand(cmd, args)
			if err != nil {
				return err
			}
			c.guard = guard
			defer c.report.lines.flush()
			return c.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // the arguments after NAME belong to the command
	f.registerLock(cmd)
	flags.StringArrayVar(&f.also, "also", nil, "hold the lock `NAME` as well, in the same way; may be repeated")
	f.registerCommand(cmd)
	flags.StringVar(&f.onLost, "on-lost", "kill", "action on the command when the lease is lost, `kill|ignore`")
	flags.Var(&f.atLeast, "at-least", "keep the lock for at least this time, even if the command ends sooner; clearly shorter than the time between two runs of a job")
	flags.Var(&f.atMost, "at-most", "end the command after this time and exit with 124")
	flags.StringVar(&f.without, "if-unavailable", "fail", "action if the store does not answer, `fail|run`: exit with 69, or run the command WITHOUT the lock")
	f.registerHolder(cmd)
	return cmd
}

// unprotected reports whether the command is to run without the lock after the store has
// failed with err.
func (f *runFlags) unprotected(err error) bool {
	return f.without == "run" && codeOf(err) == codeUnavailable
}

// registerCommand registers the flags for the command and its end.
func (f *runFlags) registerCommand(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.command, "command", "c", "", "run `STRING` with sh -c; may also follow NAME, as with flock")
	flags.BoolVar(&f.passStore, "pass-store", false, "pass the URL of the store to the command even if it has a password")
	flags.Var(&f.onWanted, "on-wanted", "send the `SIGNAL`, such as USR1, to the command once a waiter is queued for the lock, so that it can end early")
	flags.Var(&f.grace, "grace", "time between TERM and KILL (default 10s, at most a third of --ttl)")
	f.auditLog.register(cmd)
}

// runCommand checks flags and arguments. It does not use the store.
func (f *runFlags) runCommand(cmd *cobra.Command, args []string) (*runCommand, error) {
	if len(args) == 0 {
		return nil, usage("%s takes the name of a lock and a command", cmd.Name())
	}
	if cmd.ArgsLenAtDash() == 0 && !strings.HasPrefix(args[0], "-") {
		return nil, usage("%s takes the name of a lock before --, and %q follows it: is a variable for the name empty? Quote it, as in \"$LOCK\"", cmd.Name(), args[0])
	}
	argv, err := f.argv(cmd, args[1:])
	if err != nil {
		return nil, err
	}
	grace, err := f.effectiveGrace(cmd.Flags().Changed("grace"))
	if err != nil {
		return nil, err
	}
	switch {
	case f.onLost != "kill" && f.onLost != "ignore":
		return nil, usage("--on-lost %q is neither kill nor ignore", f.onLost)
	case f.without != "fail" && f.without != "run" && f.without != "":
		return nil, usage("--if-unavailable %q is neither fail nor run", f.without)
	}
	var opts []leasehold.Option
	if f.atLeast != 0 {
		opts = append(opts, leasehold.WithMinHold(time.Duration(f.atLeast)))
	}
	spec, err := newLockSpec(cmd, &f.lockFlags, append(args[:1:1], f.also...), opts...)
	if err != nil {
		return nil, err
	}
	spec.argv = argv
	if err := f.auditLog.check(); err != nil {
		return nil, err
	}
	return &runCommand{lockSpec: spec, runFlags: f, grace: grace}, nil
}

// argv returns the command: the arguments after NAME, or a shell with the string of -c,
// which may also follow NAME as with flock(1). A first "--" ends the flags.
func (f *runFlags) argv(cmd *cobra.Command, rest []string) ([]string, error) {
	shell := cmd.Flags().Changed("command")
	switch {
	case shell && len(rest) > 0:
		return nil, usage("%s takes a command or -c, not both: %q is too much", cmd.Name(), rest[0])
	case shell:
		return []string{"sh", "-c", f.command}, nil
	case len(rest) == 0:
		return nil, usage("%s takes a command after the name of the lock", cmd.Name())
	case rest[0] == "-c" || rest[0] == "--command":
		if len(rest) != 2 {
			return nil, usage("%s takes exactly one string for the shell", rest[0])
		}
		return []string{"sh", "-c", rest[1]}, nil
	case rest[0] != "--" && len(rest[0]) > 1 && rest[0][0] == '-':
		return nil, usage("flags stand before the name of the lock, and a command that looks like one behind --: %q is neither", rest[0])
	case rest[0] != "--":
		return rest, nil
	case len(rest) == 1:
		return nil, usage("%s takes a command after --", cmd.Name())
	}
	return rest[1:], nil
}

// effectiveGrace returns the time between TERM and KILL. TERM is sent this long before
// the lease can end, so a grace above a third of the TTL would leave too little time to
// renew.
func (f *runFlags) effectiveGrace(given bool) (time.Duration, error) {
	longest := time.Duration(f.ttl) / 3
	switch grace := time.Duration(f.grace); {
	case !given:
		return min(10*time.Second, longest), nil
	case grace > longest:
		return 0, usage("--grace %v is more than a third of --ttl %v, the most that leaves time to renew; give --ttl %v", grace, time.Duration(f.ttl), 3*grace)
	default:
		return grace, nil
	}
}

var runLong = strings.TrimSpace(fmt.Sprintf(`
Run waits for the lock NAME, runs COMMAND while it holds it, and ends with the
command's exit code. Flags come before NAME; the words after the command belong to
it. Standard input and output pass through, and signals are forwarded to the command
and its descendants.

The lock is released when all processes of the command have ended. If the lease
cannot be kept, the command gets TERM, and KILL after the grace, before another
process can hold the lock. If leasehold itself is killed, the command dies with it.
It cannot end a command of another user: write "sudo leasehold run", not
"run ... sudo".

The command sees in its environment:
  %-24s name of the lock
  %-24s id of the lease
  %-24s fencing token: greater than all before, unless it re-enters
  %-24s end of the lease at the start, unless it is renewed
  %-24s owner that is shown as the holder
  %-24s exclusive, shared or limited
  %-24s number of the place with --limit N: 0 to N-1, its own while it runs
  %-24s all of them with --permits, such as 0,3
  %-24s the locks of --also and of outer runs, as JSON
  %-24s URL of the store, unless it has a password; see --pass-store
  %-24s if it has one: the URL without the password
  %-24s 1 if it runs without the lock; see --if-unavailable
With these, a run of the same NAME inside the command enters at once instead of
waiting for itself. It exits with %d if the outer lease has been lost.

With -s, other commands with -s may hold the lock at the same time. With --limit N,
up to N commands may hold it. With --also, run holds several locks, taken in the
order of their names.

See "leasehold --help" for stores and exit codes.
`, envKey, envLease, envToken, envDeadline, envOwner, envMode, envPlace, envPlaces, envOuter, envStore, envHidden, envUnprotected, codeLost))

const runExample = `  leasehold run nightly-backup -- ./backup.sh
  # cron on many hosts
  leasehold run -n -q -E 0 --at-least 10m --at-most 2h nightly-backup -- ./backup.sh
  leasehold run -w 5m --at-most 1h migrate ./migrate.sh
  leasehold run -E 0 -n cleanup -c 'rm -rf /srv/tmp/* && echo done'
  leasehold run -s catalog ./export.sh                        # with other readers
  leasehold run --limit 4 gpu ./train.sh                      # at most four at a time
  leasehold run --also orders --also stock audit ./audit.sh   # three locks
  leasehold run --store redis://db1:6379 deploy make deploy`
