package server

import "time"

// WithSlowness sets how long headers and bodies may take to arrive.
func WithSlowness(header, body time.Duration) Option {
	return func(c *config) error {
		c.headerTimeout, c.bodyTimeout = header, body
		return nil
	}
}

// WithWriteTimeout sets how long a client may take to read.
func WithWriteTimeout(d time.Duration) Option {
	return func(c *config) error {
		c.writeTimeout = d
		return nil
	}
}
