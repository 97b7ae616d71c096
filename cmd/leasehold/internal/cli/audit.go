package cli

import (
	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/audit"
	"github.com/leasehold-go/leasehold/leaseholdaudit"
)

// checkAuditLog refuses a file that cannot be appended to, before a lock is taken.
func checkAuditLog(name string) error {
	if name == "" {
		return nil
	}
	file, err := audit.Open(name)
	if err != nil {
		return usage("--audit-log: %w", err)
	}
	return file.Close()
}

// audited are the options that have a run write its audit log. It opens the file for each
// of its few lines, since the signal that rotates logs belongs to the command.
func (c *runCommand) audited() []leasehold.Option {
	if c.runFlags.auditLog == "" {
		return nil
	}
	failed := func(err error) {
		if err != nil {
			c.report.tell(levelQuiet, event{Event: "unaudited", Key: c.names[0], Error: err.Error()}, "the audit log cannot be written: %v", err)
		}
	}
	return []leasehold.Option{leasehold.WithObserver(leaseholdaudit.New(audit.Appender(c.runFlags.auditLog), failed))}
}
