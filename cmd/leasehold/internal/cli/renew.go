package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
)

func newRenew(g *global) *cobra.Command {
	var ttl duration
	cmd := &cobra.Command{
		Use:   "renew [flags] NAME ID",
		Short: "Renew a lease that \"acquire\" has taken",
		Long: strings.TrimSpace(fmt.Sprintf(`
Renew extends a lease to --ttl from now, and never shortens it. If the lease has
ended, the exit code is %d: another process may hold the lock, and the work under it
must stop. The code is %d if the store did not answer, and %d if the store does not
grant such a long lease; in both cases the lease ends at the same time as before.
`, codeLost, codeUnavailable, codeUsage)),
		Example: `  leasehold renew deploy "$id" --ttl 5m || exit`,
		Args:    exactly(2, "the name of a lock and the id of a lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref := driver.Ref{Key: args[0], ID: args[1], TTL: time.Duration(ttl)}
			return g.refer(ref, func(ctx context.Context, store driver.Driver) (reply driver.Reply, err error) {
				store.Renew(ctx, []driver.Ref{ref}, func(_ int, r driver.Reply, e error) { reply, err = r, e })
				if reply.State == driver.Queued {
					reply = driver.Reply{} // a place in the queue is not a lease
				}
				return reply, err
			})
		},
	}
	durationVar(cmd.Flags(), &ttl, "ttl", 30*time.Second, "time to live of the lease from now on")
	return cmd
}

func newRelease(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "release NAME ID",
		Short: "Give back a lease that \"acquire\" has taken",
		Long: strings.TrimSpace(fmt.Sprintf(`
Release gives a lease back, and the next waiter gets the lock. If the lease had ended
before, the exit code is %d: the work under it was not protected to the end. The code
is %d if the store could not be asked, and %d if it has not confirmed the release; the
lease then ends with its time to live. A second release within a minute has the same
result as the first.
`, codeLost, codeUnavailable, codeUnreleased)),
		Example: `  leasehold release deploy "$id"`,
		Args:    exactly(2, "the name of a lock and the id of a lease"),
		RunE: func(_ *cobra.Command, args []string) error {
			err := g.release(args[0], args[1])
			if errors.Is(err, leasehold.ErrUnknown) {
				return &exitError{code: codeUnreleased, err: err}
			}
			return err
		},
	}
}

// release releases a lease that has outlived its command.
func (g *global) release(key, id string) error {
	ref := driver.Ref{Key: key, ID: id, SingleUseID: true, RejectIDFor: remembered}
	return g.refer(ref, func(ctx context.Context, store driver.Driver) (driver.Reply, error) {
		return store.Release(ctx, ref)
	})
}

// remembered is the time for which a store keeps the record that a lease was released and not
// lost. With this record, a release can be repeated after a lost reply.
const remembered = time.Minute

// refer sends a request about a lease by its id, until the store answers. Renewals and
// releases may be repeated.
func (g *global) refer(ref driver.Ref, ask func(context.Context, driver.Driver) (driver.Reply, error)) error {
	if err := checkRef(ref); err != nil {
		return err
	}
	rawURL, err := g.storeURL()
	if err != nil {
		return err
	}
	store, err := stores.Open(rawURL)
	if err != nil {
		return err
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(noContext, requestTimeout)
	defer cancel()
	unanswered := false // whether a try got no answer
	for pause := 20 * time.Millisecond; ; pause *= 2 {
		try, end := context.WithTimeout(ctx, requestTimeout/3)
		reply, err := ask(try, store)
		end()
		switch {
		case err == nil && reply.Broken:
			return fmt.Errorf("lock %q: %w: %w: %s", ref.Key, leasehold.ErrLost, leasehold.ErrBroken, reply.Reason)
		case err == nil && reply.State == driver.Gone && !reply.Replayed: // it was not released before
			return fmt.Errorf("lock %q: %w: the store does not have lease %s any more", ref.Key, leasehold.ErrLost, ref.ID)
		case err == nil:
			return nil
		}
		certain := errors.Is(err, leasehold.ErrUnavailable) || codeOf(err) == codeUsage || codeOf(err) == codeInUse
		unanswered = unanswered || !certain
		if certain || ctx.Err() != nil || pause > time.Second {
			return failedRef(ref, err, unanswered)
		}
		time.Sleep(pause)
	}
}

// failedRef wraps err with the name of the lock, and with ErrUnknown if a try was not answered,
// so that the outcome is unknown.
func failedRef(ref driver.Ref, err error, unanswered bool) error {
	if unanswered {
		return fmt.Errorf("lock %q: %w: %w", ref.Key, leasehold.ErrUnknown, err)
	}
	return fmt.Errorf("lock %q: %w", ref.Key, err)
}

func checkRef(ref driver.Ref) error {
	if check.ID(ref.ID) != nil {
		return usage("%q is not the id of a lease", ref.ID)
	}
	if err := check.Key(ref.Key); err != nil {
		return fmt.Errorf("leasehold: lock %q: %w", ref.Key, err)
	}
	return nil
}
