package etcddriver

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasehold-go/leasehold/internal/timing"
)

const (
	// margin is by how much everything lasts longer than its caller expects: the clock counts
	// seconds, so a time that is read is up to a second behind.
	margin = 1100 * time.Millisecond
	// year is the time to live of an epoch's lease. Its end begins another epoch.
	year = 365 * 24 * time.Hour
)

// epoch is a period of the clock, which shows base plus the age of a lease. The leader of a term counts
// that age; another leader counts it from the beginning. The key of the epoch has the lease, so it
// disappears with it.
type epoch struct {
	rev   int64 // of the key; 0 without one
	base  int64 // µs since 1970
	term  uint64
	lease clientv3.LeaseID
}

const epochForm = "1 %d %d" // base, term

// view is the result of a linearizable read, and the clock.
type view struct {
	record   []byte
	rev      int64 // of the record; 0 without one
	epoch    epoch
	shown    int64 // µs: the greatest time by which a write was decided; 0 without one
	shownRev int64
	term     uint64
	now      int64 // µs
	more     *clientv3.GetResponse
}

// counts reports whether the present leader counts the view's epoch.
func (v *view) counts() bool { return v.epoch.rev != 0 && v.epoch.term == v.term && v.shown != 0 }

// look reads a record and the clock, and runs more in the same request. The age of the lease is
// read first: if the later read is in the term of the epoch, so was the age.
func (t *table) look(ctx context.Context, key string, more ...clientv3.Op) (v view, err error) {
	for {
		e := *t.epoch.Load()
		age, known, err := t.age(ctx, e)
		if err == nil {
			v, err = t.get(ctx, key, more)
		}
		switch {
		case err != nil:
			return v, err
		case !v.counts():
			if err := t.begin(ctx, v); err != nil {
				return v, err
			}
		case v.epoch != e:
			seen := v.epoch
			t.epoch.Store(&seen)
		case known:
			v.now = max(e.base+age.Microseconds(), v.shown)
			return v, nil
		case !timing.Sleep(ctx, 20*time.Millisecond): // the leader does not count yet
			return v, ctx.Err()
		}
	}
}

// age returns the age of an epoch's lease, rounded down to seconds.
func (t *table) age(ctx context.Context, e epoch) (age time.Duration, known bool, err error) {
	if e.lease == clientv3.NoLease {
		return 0, false, nil
	}
	err = t.ask(ctx, func(ctx context.Context, client *clientv3.Client) error {
		left, err := client.TimeToLive(ctx, e.lease)
		if err != nil {
			return err
		}
		// Etcd rounds the rest down, and so the age up. A leader shows an endless rest before
		// it counts, and adds a moment when it begins.
		seconds := left.GrantedTTL - left.TTL - 1
		age, known = time.Duration(seconds)*time.Second, left.TTL >= 0 && seconds > -60
		return nil
	})
	return age, known, err
}

// begin replaces the epoch of a view by one in the view's term, at the time that was shown last. If
// another process is faster, or shows a later time, nothing happens.
func (t *table) begin(ctx context.Context, v view) error {
	base := v.shown
	if base == 0 {
		base = max(v.epoch.base, time.Now().UnixMicro())
	}
	clock, shown := t.prefix+epochKey, t.prefix+shownKey
	return t.ask(ctx, func(ctx context.Context, client *clientv3.Client) error {
		lease, err := client.Grant(ctx, int64(year/time.Second))
		if err != nil {
			return err
		}
		done, err := client.Txn(ctx).If(
			clientv3.Compare(clientv3.ModRevision(clock), "=", v.epoch.rev),
			clientv3.Compare(clientv3.ModRevision(shown), "=", v.shownRev),
		).Then(
			clientv3.OpPut(clock, fmt.Sprintf(epochForm, base, v.term), clientv3.WithLease(lease.ID)),
			clientv3.OpPut(shown, fmt.Sprintf(shownForm, base)),
		).Commit()
		if err != nil {
			return err
		}
		unused := v.epoch.lease
		if !done.Succeeded {
			unused = lease.ID
		}
		if unused != clientv3.NoLease {
			_, err = client.Revoke(ctx, unused)
			_ = err // it ends within a year
		}
		return nil
	})
}
