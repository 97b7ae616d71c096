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

// StaleFields are those that the document describes and no type has.
func StaleFields() []string {
	types := make(schemas)
	paths(routes(), types)
	var stale []string
	for name, all := range fields {
		properties, _ := types[name]["properties"].(object)
		for field := range all {
			if properties[field] == nil {
				stale = append(stale, name+"."+field)
			}
		}
	}
	return stale
}
