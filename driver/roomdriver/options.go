package roomdriver

import "time"

// Option changes how a driver uses its table.
type Option func(*config)

type config struct {
	memory   time.Duration
	interval time.Duration
	counts   bool
}

// WithCounter is for a [Transactor] with a counter of tokens for all its records: it gives
// each transaction of one item a token ([Found]), and a conditional write too ([Exchange]). The
// record of a lock is then removed with its release, since the counter remembers for it.
//
// A value of the counter is greater than all before it. It is not above the clock, unless the
// clock was stepped back or [Change] asks for more, and at most an hour behind it. After the
// table has lost data it is greater than before, if the clock was right: for instance, it is
// raised to the clock by each new connection.
func WithCounter() Option { return func(c *config) { c.counts = true } }

// WithMemory sets for how long a table without a counter remembers a token after it was
// given, an hour by default, so that the next one is greater although the table's clock was
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

func newConfig(options []Option) config {
	c := config{memory: time.Hour, interval: time.Minute}
	for _, option := range options {
		option(&c)
	}
	return c
}
