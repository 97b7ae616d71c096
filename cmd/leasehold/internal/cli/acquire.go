package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold"
)

func newAcquire(g *global) *cobra.Command {
	f := newLockFlags(g)
	cmd := &cobra.Command{
		Use:   "acquire [flags] NAME",
		Short: "Take a lease that outlives this command, for scripts",
		Long: strings.TrimSpace(`
Acquire waits for the lock NAME and prints the id of the lease and its fencing
token on one line. The lease is not renewed: it ends after --ttl, counted from the
moment of printing, unless "leasehold renew" prolongs it before, or "leasehold
release" ends it. If it cannot be printed, it is given back.

Use "leasehold run" for a command that can run under it: there the lease is renewed,
and its loss ends the command. Acquire is for scripts that cannot be wrapped; they
must check the exit code of each renewal, and fence their writes.
`),
		Example: `  read -r id token <<<"$(leasehold acquire --ttl 5m deploy)" && test "$id" || exit
  leasehold renew deploy "$id" --ttl 5m || exit
  leasehold release deploy "$id"`,
		Args: exactly(1, "the name of a lock"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if outputClosed() {
				return &exitError{code: codeOutput, err: errors.New("standard output is closed, so the id of the lease would be lost; >/dev/null discards it")}
			}
			spec, err := newLockSpec(cmd, &f, args, leasehold.WithoutRenewal())
			if err != nil {
				return err
			}
			return spec.acquireDetached(cmd)
		},
	}
	f.registerLock(cmd)
	f.registerHolder(cmd)
	return cmd
}

// leftLease describes a lease that outlives the command, as JSON.
type leftLease struct {
	Key    string `json:"key"`
	Lease  string `json:"leaseId"`
	Token  int64  `json:"token"`
	Places []int  `json:"places,omitempty"`
	Owner  string `json:"owner"`
	TTL    int64  `json:"ttlMs"`
}

// print prints the lease's id and token.
func (spec *lockSpec) print(lease *leasehold.Lease, out io.Writer) error {
	return spec.flags.printResult(out, leftLease{
		Key: lease.Key(), Lease: lease.ID(), Token: lease.Token(), Places: lease.Places(), Owner: spec.owner, TTL: spec.ttl().Milliseconds(),
	}, fmt.Sprintln(lease.ID(), lease.Token()))
}

// acquireDetached takes the lock, leaves its lease in the store, and prints it. It
// releases a lease that cannot be printed, because its id would be lost.
func (spec *lockSpec) acquireDetached(cmd *cobra.Command) error {
	defer spec.report.lines.flush()
	client, err := open(spec.store)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, watcher := watchSignals(cmd.Context())
	defer watcher.stop()
	held, err := spec.acquire(ctx, client)
	watcher.detach()
	if err == nil && ctx.Err() != nil { // a signal arrived just before detach
		err = errors.Join(context.Cause(ctx), held.release(nil))
	}
	if err != nil {
		return spec.refused(ctx, err)
	}
	bound, cancel := context.WithTimeout(noContext, requestTimeout)
	defer cancel()
	if err := held.main.Detach(bound); err != nil {
		return errors.Join(err, held.release(nil))
	}
	signal.Ignore(syscall.SIGPIPE) // its default action would end the process here
	if err := spec.print(held.main, cmd.OutOrStdout()); err != nil {
		return errors.Join(err, spec.flags.release(held.main.Key(), held.main.ID()))
	}
	return nil
}

// outputClosed reports whether the process began without a standard output. In that case Go's
// runtime opens /dev/null for reading and writing; a redirection of a shell opens it only for
// writing.
func outputClosed() bool {
	out, err := os.Stdout.Stat()
	if err != nil {
		return true
	}
	null, err := os.Stat(os.DevNull)
	if err != nil || !os.SameFile(out, null) {
		return false
	}
	flags, err := unix.FcntlInt(1, unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == unix.O_RDWR
}

// requestTimeout bounds a request that does not wait.
const requestTimeout = 10 * time.Second

func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usage("%s takes %s, and no more", cmd.Name(), what)
		}
		return nil
	}
}
