package filedriver

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// page is the approximate number of keys that List returns at a time.
const page = 256

// List returns a page of the keys in use that begin with prefix, in no particular order,
// and the cursor of the next page, empty after the last. It lists a key whose record is
// damaged if the file's name contains the key, since the lock is not free. The error
// matches [driver.ErrInvalid] if the cursor is not from List. See [driver.Inspector].
func (s *Driver) List(ctx context.Context, prefix, cursor string) (keys []string, next string, err error) {
	n, after, err := parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	defer s.tick(1)
	prefix = s.config.prefix + prefix
	for ; n < shards; n, after = n+1, "" {
		if err := s.ready(ctx); err != nil {
			return nil, "", err
		}
		names := s.shards[n].names()
		at, _ := slices.BinarySearch(names, after+"\x00")
		names = slices.DeleteFunc(names[at:], func(name string) bool {
			key, ok := keyOf(name)
			return ok && !strings.HasPrefix(key, prefix)
		})
		for chunk := range slices.Chunk(names, sweepLock) {
			_, err := s.examine(ctx, s.shards[n], chunk, s.config.timeout, func(name string, rec *record) {
				if key, ok := s.listed(name, rec); ok && strings.HasPrefix(key, prefix) {
					keys = append(keys, strings.TrimPrefix(key, s.config.prefix))
				}
			})
			if err != nil {
				return nil, "", err
			}
			if len(keys) >= page {
				return keys, strconv.Itoa(n) + "/" + chunk[len(chunk)-1], nil
			}
		}
	}
	return keys, "", nil
}

// ready returns the error of a call that cannot begin.
func (s *Driver) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return unavailable(s.tree.dir, err)
	}
	select {
	case <-s.closed:
		return driver.ErrClosed
	default:
		return nil
	}
}

// listed returns the key of a record that is in use, or cannot be read.
func (s *Driver) listed(name string, rec *record) (key string, ok bool) {
	if rec == nil {
		return keyOf(name)
	}
	snap := room.Look(&rec.room, rec.key, s.clock.read())
	return rec.key, len(snap.Holders)+len(snap.Waiters) > 0 || snap.Closed > 0
}

// parseCursor reads a cursor: the shard and the last file name that was examined.
func parseCursor(cursor string) (shard int, after string, err error) {
	if cursor == "" {
		return 0, "", nil
	}
	number, after, ok := strings.Cut(cursor, "/")
	shard, err = strconv.Atoi(number)
	if !ok || err != nil || shard < 0 || shard >= shards {
		return 0, "", fmt.Errorf("cursor %.80q: %w", cursor, driver.ErrInvalid)
	}
	return shard, after, nil
}
