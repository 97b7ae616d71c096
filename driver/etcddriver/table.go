package etcddriver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// table keeps a record under one key of etcd. It is a [roomdriver.Reader] and Notifier.
type table struct {
	options
	*link
	epoch atomic.Pointer[epoch] // seen last
	mail  mail
}

var (
	_ roomdriver.Reader   = (*table)(nil)
	_ roomdriver.Notifier = (*table)(nil)
)

// Keys below the prefix.
const (
	records  = "k/" // and the key of the record
	messages = "m/" // and the address
	epochKey = "clock"
	shownKey = "shown"
)

// shownForm is the form of a time that is compared as text.
const shownForm = "%020d"

// try makes one request, which ends after a quarter of the timeout.
func (t *table) try(ctx context.Context, request func(ctx context.Context) error) (late bool, err error) {
	try, stop := context.WithTimeout(ctx, t.timeout/4)
	defer stop()
	var reason string
	err = request(context.WithValue(try, reasonKey{}, &reason))
	late = err != nil && try.Err() != nil && ctx.Err() == nil
	if err != nil && reason != "" {
		err = fmt.Errorf("%w: %s", err, reason)
	}
	return late, err
}

// reasonKey is the key of a *string in a context: why a request reached no member.
type reasonKey struct{}

// noteReason is an interceptor of the client, which only returns that the context has ended. gRPC has
// the reason in the text of its error.
func noteReason(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if reason, ok := ctx.Value(reasonKey{}).(*string); ok && err != nil {
		_, *reason, _ = strings.Cut(err.Error(), "latest balancer error: ")
	}
	return err
}

// ask makes a request, and repeats it if there is no answer: the client takes another member then.
func (t *table) ask(ctx context.Context, request func(ctx context.Context, client *clientv3.Client) error) error {
	client, err := t.connect(ctx)
	for late := err == nil; late; {
		late, err = t.try(ctx, func(ctx context.Context) error { return request(ctx, client) })
	}
	return err
}

func (t *table) get(ctx context.Context, key string, more []clientv3.Op) (v view, err error) {
	ops := []clientv3.Op{clientv3.OpGet(t.prefix + epochKey), clientv3.OpGet(t.prefix + shownKey), clientv3.OpGet(t.prefix + records + key)}
	var got *clientv3.TxnResponse
	err = t.ask(ctx, func(ctx context.Context, client *clientv3.Client) (err error) {
		got, err = client.Txn(ctx).Then(append(ops, more...)...).Commit()
		return err
	})
	if err != nil {
		return v, err
	}
	v.term = got.Header.RaftTerm
	if len(more) > 0 {
		v.more = (*clientv3.GetResponse)(got.Responses[len(ops)].GetResponseRange())
	}
	for i := range ops {
		kvs := got.Responses[i].GetResponseRange().Kvs
		switch {
		case len(kvs) == 0:
		case i == 0:
			v.epoch.rev, v.epoch.lease = kvs[0].ModRevision, clientv3.LeaseID(kvs[0].Lease)
			_, err = fmt.Sscanf(string(kvs[0].Value), epochForm, &v.epoch.base, &v.epoch.term)
		case i == 1:
			v.shownRev = kvs[0].ModRevision
			v.shown, err = strconv.ParseInt(string(kvs[0].Value), 10, 64)
		default:
			v.record, v.rev = kvs[0].Value, kvs[0].ModRevision
		}
		if err != nil {
			return v, fmt.Errorf("the key %q has a value of another program: %w", kvs[0].Key, driver.ErrMismatch)
		}
	}
	return v, nil
}

// Update implements [roomdriver.Table]. A write also requires the epoch of its clock.
func (t *table) Update(ctx context.Context, key string, f func(record []byte, now time.Time) (next []byte, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 32*time.Millisecond) {
		v, err := t.look(ctx, key)
		if err != nil {
			return unavailable(explain(err))
		}
		next, err := f(v.record, time.UnixMicro(v.now))
		if err != nil || (next == nil) == (v.record == nil) && bytes.Equal(next, v.record) {
			return err
		}
		if done, err := t.swap(ctx, key, v, next); done || err != nil {
			return err
		}
		if !timing.Sleep(ctx, rand.N(pause)+pause/2) {
			return fmt.Errorf("%w: the record was replaced again and again: %w", driver.ErrUnavailable, ctx.Err())
		}
	}
}

// swap replaces the record of a view. Without an answer it sends the request again, to another
// member: no revision of a record returns, so at most one of the requests takes effect. An answer that
// the conditions do not hold shows that no earlier request takes effect later. A missing record may be
// written and removed in between, so a request that expects none is sent once.
func (t *table) swap(ctx context.Context, key string, v view, next []byte) (bool, error) {
	client, err := t.connect(ctx)
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return false, unavailable(explain(err))
	}
	name, shown, now := t.prefix+records+key, t.prefix+shownKey, fmt.Sprintf(shownForm, v.now)
	change := clientv3.OpDelete(name)
	if next != nil {
		change = clientv3.OpPut(name, string(next))
	}
	later := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(shown), "<", now)}, []clientv3.Op{clientv3.OpPut(shown, now)}, nil)
	for sent := 1; ; sent++ {
		var done *clientv3.TxnResponse
		_, err := t.try(ctx, func(ctx context.Context) (err error) {
			done, err = client.Txn(ctx).If(
				clientv3.Compare(clientv3.ModRevision(name), "=", v.rev),
				clientv3.Compare(clientv3.ModRevision(t.prefix+epochKey), "=", v.epoch.rev),
			).Then(change, later).Else(clientv3.OpGet(name)).Commit()
			return err
		})
		switch {
		case err == nil && done.Succeeded:
			return true, nil
		case err == nil:
			return made(done.Responses[0].GetResponseRange().Kvs, v.rev, next, sent)
		case sent == 1 && full(err):
			return t.madeWhenFull(ctx, client, name, v.rev, next, err)
		case sent == 1 && definite(err):
			return false, unavailable(explain(err))
		case v.rev == 0, client.Ctx().Err() != nil, !timing.Sleep(ctx, again): // or closed, or out of time
			return false, explain(err)
		}
	}
}

// again is the pause before a request without an answer is repeated.
const again = 50 * time.Millisecond

// errOvertaken is returned if an answer was lost, and then the record was replaced.
var errOvertaken = errors.New("an answer of etcd was lost, and the record has been replaced since")

// made reports whether one of the equal requests sent has replaced the record, when the last has
// found the present record.
func made(found []*mvccpb.KeyValue, rev int64, next []byte, sent int) (bool, error) {
	var now mvccpb.KeyValue
	if len(found) > 0 {
		now = *found[0]
	}
	switch {
	case sent == 1 || now.ModRevision == rev:
		return false, nil
	case next != nil && bytes.Equal(now.Value, next):
		return true, nil
	}
	return false, errOvertaken
}

// madeWhenFull returns the outcome of a write with the error of a full store: etcd returns that error
// also for the first write that passes the quota, which it makes.
func (t *table) madeWhenFull(ctx context.Context, client *clientv3.Client, name string, rev int64, next []byte, err error) (bool, error) {
	now, lost := client.Get(ctx, name)
	if lost != nil {
		return false, explain(lost)
	}
	done, unknown := made(now.Kvs, rev, next, 2)
	if done || unknown != nil {
		return done, unknown
	}
	return false, unavailable(explain(err))
}

// Read implements [roomdriver.Reader].
func (t *table) Read(ctx context.Context, key string) ([]byte, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	v, err := t.look(ctx, key)
	return v.record, time.UnixMicro(v.now), unavailable(explain(err))
}

// page is how many records List returns at a time.
const page = 256

// List implements [roomdriver.Table]. The cursor is the last key of a page.
func (t *table) List(ctx context.Context, prefix, cursor string) (p roomdriver.Page, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	first := t.prefix + records
	from, end := first+prefix, clientv3.GetPrefixRangeEnd(first+prefix)
	if cursor != "" {
		from = first + cursor + "\x00"
	}
	v, err := t.look(ctx, "", clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(page)))
	if err != nil {
		return p, unavailable(explain(err))
	}
	p.Now = time.UnixMicro(v.now)
	for _, kv := range v.more.Kvs {
		p.Entries = append(p.Entries, roomdriver.Entry{Key: strings.TrimPrefix(string(kv.Key), first), Record: kv.Value})
	}
	if v.more.More {
		p.Next = p.Entries[len(p.Entries)-1].Key
	}
	return p, nil
}

// Close implements [roomdriver.Table].
func (t *table) Close() error { return t.close() }
