package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
)

func newAcquire(g *global) *cobra.Command {
	f := newLockFlags(g)
	cmd := &cobra.Command{
		Use:   "acquire [flags] NAME",
		Short: "Take a lease that outlives this command, for scripts",
		Long: strings.TrimSpace(`
Acquire waits for the lock NAME and prints the id of the lease and its fencing
token on one line. Nobody renews the lease: it ends after --ttl, counted from the
moment of printing, unless "leasehold renew" prolongs it before, or "leasehold
release" ends it. If it cannot be printed, it is given back.

A command that can run under "leasehold run" should: there the lease is renewed,
and its loss ends the command. This is for scripts that cannot be wrapped; they
check the exit code of each renewal, and fence what they write.
`),
		Example: `  read -r id token <<<"$(leasehold acquire --ttl 5m deploy)" && test "$id" || exit
  leasehold renew deploy "$id" --ttl 5m || exit
  leasehold release deploy "$id"`,
		Args: exactly(1, "the name of a lock"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := newWant(cmd, &f, args, leasehold.WithoutRenewal())
			if err != nil {
				return classify(err)
			}
			return classify(w.leave(cmd.Context(), cmd.OutOrStdout()))
		},
	}
	f.registerLock(cmd)
	f.registerHolder(cmd)
	return cmd
}

// leftLease is a lease that was taken for somebody else.
type leftLease struct {
	Key   string `json:"key"`
	Lease string `json:"leaseId"`
	Token int64  `json:"token"`
	Owner string `json:"owner"`
	TTL   int64  `json:"ttlMs"`
}

// print tells of the lease.
func (w *want) print(lease *leasehold.Lease, out io.Writer) (err error) {
	if w.how.json {
		return json.NewEncoder(out).Encode(leftLease{
			Key: lease.Key(), Lease: lease.ID(), Token: lease.Token(), Owner: w.owner, TTL: w.ttl().Milliseconds(),
		})
	}
	_, err = fmt.Fprintln(out, lease.ID(), lease.Token())
	return err
}

// leave takes the lock, leaves its lease in the store, and tells of it. One that
// could not be told of is given back, since nobody else could do that.
func (w *want) leave(parent context.Context, out io.Writer) error {
	client, err := open(w.store)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, sentry := watchSignals(parent)
	defer sentry.relieve()
	held, err := w.acquire(ctx, client)
	sentry.settle()
	if err == nil && ctx.Err() != nil { // a signal, in the last moment
		err = errors.Join(context.Cause(ctx), held.release(nil))
	}
	if err != nil {
		return w.refused(ctx, err)
	}
	bound, cancel := context.WithTimeout(noContext, answerWithin)
	defer cancel()
	if err := held.main.Detach(bound); err != nil {
		return errors.Join(err, held.release(nil))
	}
	signal.Ignore(syscall.SIGPIPE) // whose default is to die here
	if err := w.print(held.main, out); err != nil {
		return errors.Join(err, w.how.release(held.main.Key(), held.main.ID()))
	}
	return nil
}

// answerWithin bounds how long a store is asked for what needs no waiting.
const answerWithin = 10 * time.Second

func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usage("%s takes %s, and no more", cmd.Name(), what)
		}
		return nil
	}
}
