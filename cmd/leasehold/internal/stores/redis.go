package stores

import "github.com/leasehold-go/leasehold/internal/redisurl"

// AmongOthers reports whether a URL has an empty prefix on Redis, so that every key of the
// server belongs to the store. Locks of other libraries can then be found only by a prefix.
func AmongOthers(rawURL string) bool {
	config, err := redisurl.Parse(rawURL)
	return err == nil && config.Prefix == ""
}
