package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/leaseholdaudit"
)

// auditLog is the file of --audit-log, or empty without that flag. A command opens it for each
// of its few lines, because it does not handle the signal that rotates logs.
type auditLog struct{ file string }

func (a *auditLog) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.file, "audit-log", "", "append the holder, times and end of each lease to `FILE`, as lines of JSON")
}

// check refuses a file that cannot be appended to, before anything is done.
func (a *auditLog) check() error {
	if a.file == "" {
		return nil
	}
	file, err := leaseholdaudit.Open(a.file)
	if err != nil {
		return usage("--audit-log: %w", err)
	}
	return file.Close()
}

// options returns the option that makes a client log its leases. It calls failed with the
// error if a line cannot be written, and with nil after the next line that is written.
func (a *auditLog) options(failed func(error)) []leasehold.Option {
	if a.file == "" {
		return nil
	}
	return []leasehold.Option{leasehold.WithObserver(leaseholdaudit.New(appender(a.file), failed))}
}

// appender appends to a file that it opens for each line: it may be renamed at any time.
type appender string

// Write appends to the file.
func (a appender) Write(p []byte) (int, error) {
	file, err := leaseholdaudit.Open(string(a))
	if err != nil {
		return 0, err
	}
	n, err := file.Write(p)
	return n, cmp.Or(err, file.Close())
}
