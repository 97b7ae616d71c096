package cli

import (
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
