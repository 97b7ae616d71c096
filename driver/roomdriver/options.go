package roomdriver

import "time"

// Option changes how a driver uses its table.
type Option func(*config)

type config struct {
	memory   time.Duration
	interval time.Duration
	margin   time.Duration
}

// longer returns a duration for the record. 0 stays 0.
func (c *config) longer(d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	return d + c.margin
}

// WithMemory sets for how long a table without a counter ([Found]) remembers a token after it
// was given, an hour by default, so that the next one is greater although the table's clock was
// stepped back in between. 0 is for clocks that are never stepped back. Negative
// values count as 0.
func WithMemory(d time.Duration) Option {
	return func(c *config) { c.memory = max(d, 0) }
}

// WithSweep sets the time between two sweeps that find no records, a minute by default.
// A sweep that removes as many records as it may is followed by the next after a second.
// With 0 or less there is no sweep: another program must then remove the expired
// records, see [End].
func WithSweep(interval time.Duration) Option {
	return func(c *config) { c.interval = max(interval, 0) }
}

// WithMargin makes everything in the table last longer than its caller expects: leases, places in the
// queue, delays. It is for tables with a clock of coarse steps, or with servers whose clocks
// differ: a duration that is measured by two readings may be too short by a step and by the
// difference. The lock of a dead holder opens later by the margin. Negative values count as 0.
func WithMargin(d time.Duration) Option {
	return func(c *config) { c.margin = max(d, 0) }
}
