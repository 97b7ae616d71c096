package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/memdriver"
)

// runFlags are what `leasehold run` was told.
type runFlags struct {
	*global
	nonblock  bool
	exclusive bool
	wait      duration
	conflict  int
	command   string
	ttl       duration
	grace     duration
	onLost    string
	atLeast   duration
	atMost    duration
	owner     string
	labels    []string
	quiet     bool
	verbose   bool
}

func newRun(g *global) *cobra.Command {
	f := &runFlags{global: g, ttl: duration(30 * time.Second), wait: -1}
	cmd := &cobra.Command{
		Use:     "run [flags] NAME [--] COMMAND [ARG...]",
		Short:   "Run a command while holding a lock",
		Long:    runLong,
		Example: runExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			j, err := f.job(cmd, args)
			if err != nil {
				return classify(err)
			}
			return classify(j.run(cmd.Context()))
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows NAME belongs to the command
	flags.SortFlags = false
	flags.BoolVarP(&f.nonblock, "nonblock", "n", false, "do not wait: if the lock is held, exit with 75")
	flags.VarP(&f.wait, "wait", "w", "wait at most so long, as 90s, 5m or plain seconds, then exit with 75")
	flags.Var(&f.wait, "timeout", "the same as --wait")
	flags.BoolVarP(&f.exclusive, "exclusive", "x", false, "hold the lock alone, as is the default")
	flags.IntVarP(&f.conflict, "conflict-exit-code", "E", codeBusy, "exit code if the lock is held, `N`")
	flags.StringVarP(&f.command, "command", "c", "", "run `STRING` with sh -c; may also follow NAME, as with flock")
	flags.Var(&f.ttl, "ttl", "time to live of the lease: how long a machine that dies blocks the others, and how long the store may be away")
	flags.Var(&f.grace, "grace", "time between TERM and KILL (default 10s, at most a third of --ttl)")
	flags.StringVar(&f.onLost, "on-lost", "kill", "what happens to the command when the lease is lost, `kill|ignore`")
	flags.Var(&f.atLeast, "at-least", "keep the lock for at least so long, even if the command is done sooner")
	flags.Var(&f.atMost, "at-most", "end the command after so long and exit with 124")
	flags.StringVar(&f.owner, "owner", "", "who is shown as the holder, `NAME` (default host, process and a random part)")
	flags.StringArrayVar(&f.labels, "label", nil, "shown by inspect, `KEY=VALUE`; may be repeated")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "say nothing but errors and losses")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "say what happens to the lock")
	cmd.MarkFlagsMutuallyExclusive("wait", "timeout")
	cmd.MarkFlagsMutuallyExclusive("nonblock", "wait")
	cmd.MarkFlagsMutuallyExclusive("nonblock", "timeout")
	cmd.MarkFlagsMutuallyExclusive("quiet", "verbose")
	return cmd
}

// job checks what was asked, down to what the library would refuse, before
// anything is asked of the store.
func (f *runFlags) job(cmd *cobra.Command, args []string) (*job, error) {
	if len(args) == 0 {
		return nil, usage("run takes the name of a lock and a command")
	}
	argv, err := f.argv(args[1:], cmd.Flags().Changed("command"))
	if err != nil {
		return nil, err
	}
	grace, err := f.effectiveGrace(cmd.Flags().Changed("grace"))
	if err != nil {
		return nil, err
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	store, err := f.storeURL()
	if err != nil {
		return nil, err
	}
	j := &job{
		flags: f, name: args[0], argv: argv, store: store, owner: f.owner,
		ttl: time.Duration(f.ttl), grace: grace, stderr: cmd.ErrOrStderr(),
		say: teller{w: cmd.ErrOrStderr(), json: f.json, level: f.level()},
	}
	if err := j.nest(surrounding()); err != nil {
		return nil, err
	}
	return j, checkLock(j.name, j.options())
}

func (f *runFlags) level() int {
	switch {
	case f.quiet:
		return always
	case f.verbose:
		return chatty
	}
	return normal
}

// argv is the command: what follows NAME, or a string for the shell before it,
// or after it as flock has it. A first "--" only says that no flags follow.
func (f *runFlags) argv(rest []string, shell bool) ([]string, error) {
	switch {
	case shell && len(rest) > 0:
		return nil, usage("run takes a command or -c, not both: %q is too much", rest[0])
	case shell:
		return []string{"sh", "-c", f.command}, nil
	case len(rest) == 0:
		return nil, usage("run takes a command after the name of the lock")
	case rest[0] == "-c" || rest[0] == "--command":
		if len(rest) != 2 {
			return nil, usage("%s takes exactly one string for the shell", rest[0])
		}
		return []string{"sh", "-c", rest[1]}, nil
	case rest[0] != "--":
		return rest, nil
	case len(rest) == 1:
		return nil, usage("run takes a command after --")
	}
	return rest[1:], nil
}

// effectiveGrace is the time between TERM and KILL. TERM is sent so long before
// the lease can end, so a grace above a third of the TTL would leave the store
// no time to be away for.
func (f *runFlags) effectiveGrace(given bool) (time.Duration, error) {
	longest := time.Duration(f.ttl) / 3
	switch grace := time.Duration(f.grace); {
	case !given:
		return min(10*time.Second, longest), nil
	case grace < 0:
		return 0, usage("--grace %v is negative", grace)
	case grace > longest:
		return 0, usage("--grace %v is more than a third of --ttl %v, the most that leaves time to renew; give --ttl %v", grace, time.Duration(f.ttl), 3*grace)
	default:
		return grace, nil
	}
}

func (f *runFlags) check() error {
	switch {
	case f.conflict < 0 || f.conflict > 255:
		return usage("--conflict-exit-code %d is not between 0 and 255", f.conflict)
	case slices.ContainsFunc(f.labels, func(pair string) bool { return strings.Index(pair, "=") < 1 }):
		return usage("--label %q is not of the form KEY=VALUE", f.labels)
	case f.onLost != "kill" && f.onLost != "ignore":
		return usage("--on-lost %q is neither kill nor ignore", f.onLost)
	case f.wait < -1:
		return usage("--wait %v is negative", time.Duration(f.wait))
	case f.atMost < 0:
		return usage("--at-most %v is negative", time.Duration(f.atMost))
	case f.atLeast < 0:
		return usage("--at-least %v is negative", time.Duration(f.atLeast))
	}
	return nil
}

// checkLock asks a store in memory, where it costs nothing, so that what is
// refused is refused by the same code and in the same words as later.
func checkLock(name string, opts []leasehold.Option) error {
	client, err := leasehold.New(memdriver.New())
	if err != nil {
		return err
	}
	defer client.Close()
	lease, err := client.Mutex(name, opts...).TryLock(noContext)
	if err != nil {
		return err
	}
	return lease.Release()
}

// options are those of the lock. What bounds the command's time is not among
// them: the library would give the lock back while the command still ends.
func (j *job) options() []leasehold.Option {
	f := j.flags
	opts := []leasehold.Option{leasehold.WithTTL(j.ttl), leasehold.WithOwner(j.owner)}
	if f.wait >= 0 {
		opts = append(opts, leasehold.WithMaxWait(time.Duration(f.wait)))
	}
	if f.atLeast > 0 {
		opts = append(opts, leasehold.WithMinHold(time.Duration(f.atLeast)))
	}
	if len(f.labels) > 0 {
		labels := make(map[string]string)
		for _, pair := range f.labels {
			k, v, _ := strings.Cut(pair, "=")
			labels[k] = v
		}
		opts = append(opts, leasehold.WithLabels(labels))
	}
	return opts
}

var runLong = strings.TrimSpace(fmt.Sprintf(`
Run waits for the lock NAME, runs COMMAND while it holds it, and ends with the
command's exit code. Flags stand before NAME; all that follows the command is its
own. Standard input and output pass through, and signals are forwarded to the
command and to what it has started.

The lock is released when nothing of the command is left. If the lease cannot be
kept, the command gets TERM, and KILL after the grace, before anybody else can
hold the lock. If leasehold itself is killed, the command dies with it.

The command sees in its environment:
  %-20s name of the lock
  %-20s id of the lease
  %-20s fencing token: greater than every one given before
  %-20s end of the lease at the start, unless it is renewed
  %-20s who holds it
  %-20s URL of the store
With these, a run of the same NAME inside the command enters at once instead of
waiting for itself. It exits with %d if the outer lease has been lost.

See "leasehold --help" for stores and exit codes.
`, envKey, envLease, envToken, envDeadline, envOwner, envStore, codeLost))

const runExample = `  leasehold run nightly-backup -- ./backup.sh
  leasehold run -n --at-least 1m nightly-backup ./backup.sh   # cron on many hosts
  leasehold run -w 5m --at-most 1h migrate ./migrate.sh
  leasehold run -E 0 -n cleanup -c 'rm -rf /srv/tmp/* && echo done'
  leasehold run --store redis://db1:6379 deploy make deploy`
