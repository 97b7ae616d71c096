package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

func newWait(g *global) *cobra.Command {
	f := newLockFlags(g)
	cmd := &cobra.Command{
		Use:   "wait [flags] NAME",
		Short: "Wait until a lock is free, without taking it",
		Long: strings.TrimSpace(`
Wait returns when the lock NAME has no holder and no waiter. It takes no place in the
queue and keeps no process out: another process may hold the lock when wait returns.
It looks twice a second, and waits for a store that does not answer.
`),
		Example: `  leasehold wait -w 10m migrate && ./start-server`,
		Args:    exactly(1, "the name of a lock"),
		PreRunE: func(*cobra.Command, []string) error { return f.checkConflict() },
		RunE:    g.withClient(f.untilFree),
	}
	flags := cmd.Flags()
	flags.VarP(&f.wait, "wait", "w", "longest wait, such as 90s, 5m or plain seconds; then exit with 75")
	f.registerOutage(flags)
	flags.IntVarP(&f.conflict, "conflict-exit-code", "E", codeBusy, "exit code if the lock is held, `N`")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print only errors")
	return cmd
}

// pollInterval is the time between two inspections of a lock.
const pollInterval = 500 * time.Millisecond

// untilFree returns when the lock is free.
func (f *lockFlags) untilFree(cmd *cobra.Command, args []string, client *leasehold.Client) error {
	report := newReporter(cmd.ErrOrStderr(), f.json, f.level())
	defer report.lines.flush()
	for began := time.Now(); ; {
		limit := time.Duration(f.maxOutage)
		if f.wait >= 0 {
			limit = min(limit, time.Until(began.Add(time.Duration(f.wait))))
		}
		s, err := look(cmd.Context(), client, args[0], limit, &report)
		if err != nil {
			return err
		}
		if s.Key = args[0]; free(s) {
			return nil
		}
		pause := min(pollInterval, max(timeToFree(s), 10*time.Millisecond))
		if f.wait >= 0 {
			left := time.Until(began.Add(time.Duration(f.wait)))
			if left <= 0 {
				return f.stillHeld(s, time.Since(began))
			}
			pause = min(pause, left)
		}
		time.Sleep(pause)
	}
}

// look inspects a lock. If the store does not answer, look repeats the request for at most
// limit, and reports the outage after a second.
func look(ctx context.Context, client *leasehold.Client, name string, limit time.Duration, report *reporter) (driver.Snapshot, error) {
	reported := false
	for began := time.Now(); ; time.Sleep(pollInterval) {
		s, err := client.Inspect(ctx, name)
		switch away := time.Since(began); {
		case err == nil && reported:
			report.outage(leasehold.OutageInfo{Since: began, Over: true})
			return s, nil
		case err == nil, codeOf(err) != codeUnavailable, errors.Is(err, driver.ErrPermanent), away >= limit:
			return s, err
		case !reported && away >= time.Second:
			reported = true
			report.outage(leasehold.OutageInfo{Since: began, Err: err})
		}
	}
}

func (f *lockFlags) stillHeld(s driver.Snapshot, waited time.Duration) error {
	exit := &exitError{code: f.conflict}
	if !f.quiet {
		exit.err = fmt.Errorf("gave up after %s: %s", span(waited), summary(s))
	}
	return exit
}
