package cli

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/audit"
	"github.com/leasehold-go/leasehold/leaseholdaudit"
)

// auditLog is the file of --audit-log, empty without. A command opens it for each of its
// few lines, since the signal that rotates logs is not for it.
type auditLog struct{ file string }

func (a *auditLog) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.file, "audit-log", "", "append to `FILE` who held the lock, when, and why it ended, as lines of JSON")
}

// check refuses a file that cannot be appended to, before anything is done.
func (a *auditLog) check() error {
	if a.file == "" {
		return nil
	}
	file, err := audit.Open(a.file)
	if err != nil {
		return usage("--audit-log: %w", err)
	}
	return file.Close()
}

// options have a client write the trail of its leases. failed is told what keeps a line
// from being written, or nil.
func (a *auditLog) options(failed func(error)) []leasehold.Option {
	if a.file == "" {
		return nil
	}
	return []leasehold.Option{leasehold.WithObserver(leaseholdaudit.New(audit.Appender(a.file), failed))}
}

// write writes a line about a lease that another process took.
func (a *auditLog) write(g *global, cmd *cobra.Command, line audit.Line) {
	if a.file == "" {
		return
	}
	line.Time = time.Now()
	say := newReporter(cmd.ErrOrStderr(), g.json, levelQuiet)
	defer say.lines.flush()
	audit.New(audit.Appender(a.file), func(err error) { say.unaudited(line.Key, err) }).Write(&line)
}

// released writes the line of a release that ended with err. There is none of a place in
// the queue, of a lease that was released before, and of what was not asked of the store.
func (a *auditLog) released(g *global, cmd *cobra.Command, got referral, err error) {
	line := audit.Line{Event: audit.Ended, Key: got.ref.Key, Lease: got.ref.ID, Reason: "released"}
	if err != nil {
		why := leasehold.ReleasedInfo{Err: err}
		line.Event, line.Reason, line.Detail = audit.Unreleased, why.Outcome(), err.Error()
	}
	if got.ended() || err != nil && got.asked {
		a.write(g, cmd, line)
	}
}

// caller names the user of this process and the host.
func caller() string {
	name := fmt.Sprint(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname() // or none
	return name + "@" + cmp.Or(host, "localhost")
}
