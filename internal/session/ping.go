package session

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// pingTTL is the life of Ping's lock if it is not given back: a store with a coarse clock takes no
// shorter one.
const pingTTL = 30 * time.Second

// Ping returns nil if locks can be taken in a store: it takes the lock key, and gives it
// back. It does not only read, because a read-only replica and a full disk answer reads, and a
// driver need not be a [driver.Inspector]. A key that another call holds is an answer too. A
// caller uses one key of its own, since a store may remember each key for a while.
func Ping(ctx context.Context, store driver.Driver, key, owner string) error {
	req := driver.Request{Key: key, ID: rand.Text(), Owner: owner, Since: time.Now(), TTL: pingTTL}
	if _, err := store.Acquire(ctx, req); err != nil {
		return err
	}
	_, err := store.Release(ctx, driver.Ref{Key: key, ID: req.ID})
	return err
}
