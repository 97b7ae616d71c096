package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/proc"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/operations"
	"github.com/spf13/pflag"
)

// limitFlags registers the flags that bound the requests of clients. The result returns the
// options of their values.
func limitFlags(flags *pflag.FlagSet) func() []server.Option {
	var ttl, wait, store duration
	body := flags.Int64("max-body", 64<<10, "most `BYTES` of a request's body")
	durationVar(flags, &ttl, "max-ttl", 24*time.Hour, "longest time to live of a lease, and lock delay")
	durationVar(flags, &wait, "max-wait", time.Minute, "longest time until an answer; a client that waits longer asks again")
	perClient := flags.Int("max-waiters", 20_000, "most requests of one client that wait, `N`")
	perKey := flags.Int("max-waiters-per-key", 20_000, "most requests for one lock that wait, `N`")
	conns := flags.Int("max-connections", 0, "most connections, `N` (default: nine tenths of the descriptors that the process may have)")
	undo := flags.Bool("undo-on-reset", true, "treat a reset right after the grant to a long poll as a client that died before it read; false behind balancers that reset")
	durationVar(flags, &store, "store-timeout", 5*time.Second, "time limit of a request to the store; its outcome is unknown after it")
	return func() []server.Option {
		opts := []server.Option{
			server.WithMaxBody(*body), server.WithMaxTTL(time.Duration(ttl)), server.WithMaxWait(time.Duration(wait)),
			server.WithMaxWaiters(*perClient, *perKey), server.WithStoreTimeout(time.Duration(store)),
			server.WithUndoOnReset(*undo),
		}
		if *conns != 0 {
			opts = append(opts, server.WithMaxConnections(*conns))
		}
		return opts
	}
}

// operationFlags define the command that runs under /api/locks.
type operationFlags struct {
	length  duration
	command string
	ttl     duration
	wait    duration
	grace   duration
	most    int
	quorum  string
}

func (f *operationFlags) register(flags *pflag.FlagSet) {
	durationVar(flags, &f.length, "operation", 15*time.Second, "duration of the operation under /api/locks, which only waits")
	flags.StringVar(&f.command, "operation-command", "", "the operation is `STRING`, run with sh -c")
	durationVar(flags, &f.ttl, "operation-ttl", 30*time.Second, "time to live of an operation's lease")
	durationVar(flags, &f.wait, "operation-wait", 30*time.Second, "longest wait of an operation for its turn, with the pattern fair")
	durationVar(flags, &f.grace, "operation-grace", 5*time.Second, "time between TERM and KILL for a command after the loss of its lock")
	flags.IntVar(&f.most, "max-operations", 1000, "most operations at a time, `N`")
	flags.StringVar(&f.quorum, "quorum-store", "", "store of the pattern redlock, a `URL` (default: the served store)")
}

func (f *operationFlags) options() ([]server.Option, error) {
	op := operations.Simulate(time.Duration(f.length))
	if f.command != "" {
		if grace, most := time.Duration(f.grace), time.Duration(f.ttl)/3; grace < 0 || grace > most {
			return nil, usage("--operation-grace %v is not between 0 and %v, a third of --operation-ttl", grace, most)
		}
		op = f.shell()
	}
	return []server.Option{
		server.WithOperation(op), server.WithOperationTTL(time.Duration(f.ttl)),
		server.WithOperationWait(time.Duration(f.wait)), server.WithMaxOperations(f.most),
	}, nil
}

// shell returns the operation that runs the command. All its processes are gone before
// the lock can be granted to another client.
func (f *operationFlags) shell() operations.Operation {
	ttl := time.Duration(f.ttl)
	return operations.Operation{Do: func(ctx context.Context, lease *leasehold.Lease) error {
		if lease.Remaining() < ttl/2 { // it was handed over, and not confirmed yet
			if err := lease.Extend(ctx, ttl); err != nil {
				return err
			}
		}
		limit := func() time.Time { return lease.Deadline().Add(-killBefore(ttl)) }
		last := limit()
		null, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer null.Close()
		p, err := proc.Start(proc.Command{
			Args: []string{"sh", "-c", f.command}, Env: operationEnv(lease), Stdin: null, Stdout: os.Stderr,
			Grace: time.Duration(f.grace), Deadline: last, Background: true,
		})
		if err != nil {
			return err
		}
		follow(p, ttl, ctx.Done(), func() {
			if now := limit(); ctx.Err() == nil && now.After(last) {
				last = now
				p.SetDeadline(now)
			}
		}, func() { p.Stop(time.Duration(f.grace)) })
		result, err := p.Wait()
		if result.Code != 0 {
			err = errors.Join(err, fmt.Errorf("the command ended with code %d", result.Code))
		}
		return err
	}}
}

// operationEnv returns the environment of the command. It omits the variables of "leasehold
// run", because a run in the command cannot re-enter.
func operationEnv(l *leasehold.Lease) []string {
	return append(passedOn("", false),
		envKey+"="+l.Key(),
		envLease+"="+l.ID(),
		envToken+"="+strconv.FormatInt(l.Token(), 10),
		envDeadline+"="+l.Deadline().Format(time.RFC3339Nano),
	)
}
