package cli

import (
	"cmp"
	"errors"
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
	audit.New(audit.Appender(a.file), unaudited(g, cmd)).Write(&line)
}

// unaudited says that a line of the trail is lost.
func unaudited(g *global, cmd *cobra.Command) func(error) {
	return func(err error) {
		if err != nil {
			g.complain(cmd, &exitError{code: codeOutput, err: fmt.Errorf("the audit log cannot be written: %w", err)})
		}
	}
}

// released is the line of a release that ended with err.
func released(key, id string, err error) audit.Line {
	line := audit.Line{Event: audit.Ended, Key: key, Lease: id, Reason: "released"}
	switch {
	case err == nil:
		return line
	case errors.Is(err, leasehold.ErrLost):
		line.Reason = "lost"
	case errors.Is(err, leasehold.ErrUnknown):
		line.Reason = "unknown"
	default:
		line.Reason = "unavailable"
	}
	line.Event, line.Detail = audit.Unreleased, err.Error()
	return line
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
