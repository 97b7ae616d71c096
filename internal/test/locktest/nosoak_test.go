//go:build !soak

package locktest_test

import "time"

// soakLasts is how long processes mix all kinds of lock.
const soakLasts = 20 * time.Second
