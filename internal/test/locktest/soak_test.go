//go:build soak

package locktest_test

import "time"

// soakLasts is how long processes mix all kinds of lock, under the tag soak.
const soakLasts = 10 * time.Minute
