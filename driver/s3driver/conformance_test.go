package s3driver

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/roomdriver/tabletest"
	"github.com/leasehold-go/leasehold/driver/s3driver/internal/fakes3"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// scale is how many times longer things last in the store than in the suite: a lease of
// 200 ms lives for 400 s there.
const scale = 2000

// slow is a driver on a store in which everything lasts longer.
type slow struct{ *Driver }

func (d slow) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	req.TTL, req.TicketTTL, req.LockDelay, req.ConfirmWindow = scale*req.TTL, scale*req.TicketTTL, scale*req.LockDelay, scale*req.ConfirmWindow
	reply, err := d.Driver.Acquire(ctx, req)
	return faster(reply), err
}

func (d slow) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	longer := make([]driver.Ref, len(refs))
	for i, ref := range refs {
		ref.TTL, ref.TicketTTL = scale*ref.TTL, scale*ref.TicketTTL
		longer[i] = ref
	}
	d.Driver.Renew(ctx, longer, func(i int, reply driver.Reply, err error) { each(i, faster(reply), err) })
}

func (d slow) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	ref.KeepClosed, ref.RejectIDFor = scale*ref.KeepClosed, scale*ref.RejectIDFor
	reply, err := d.Driver.Release(ctx, ref)
	return faster(reply), err
}

func (d slow) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	reply, err := d.Driver.Break(ctx, key, id, reason)
	return faster(reply), err
}

func (d slow) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	snap, err := d.Driver.Inspect(ctx, key)
	snap.Closed /= scale
	for i := range snap.Holders {
		snap.Holders[i].Remaining /= scale
	}
	for i := range snap.Waiters {
		snap.Waiters[i].Remaining /= scale
	}
	return snap, err
}

func (d slow) Reserve(ctx context.Context, by string, life time.Duration) (bool, error) {
	return d.Driver.Reserve(ctx, by, scale*life)
}

func (d slow) Mark(ctx context.Context, mark driver.Mark, by string) error {
	mark.Quarantine *= scale
	return d.Driver.Mark(ctx, mark, by)
}

func (d slow) Marked(ctx context.Context) (driver.Mark, bool, error) {
	mark, ok, err := d.Driver.Marked(ctx)
	mark.Quarantine /= scale
	return mark, ok, err
}

func faster(reply driver.Reply) driver.Reply {
	reply.RetryAfter /= scale
	reply.Clock /= scale
	for i := range reply.Holders {
		reply.Holders[i].Remaining /= scale
	}
	return reply
}

func TestConformance(t *testing.T) { conform(t, fakes3.Complete) }

// A store without conditional deletions keeps empty objects.
func TestConformance_WithoutConditionalDeletes(t *testing.T) {
	skip.Nightly(t, "TestTable plays such a store, too")
	conform(t, fakes3.IfMatchOfDelete, roomdriver.WithMemory(0))
}

func conform(t *testing.T, lacks fakes3.Lacks, opts ...roomdriver.Option) {
	var s *fakes3.Server
	var url string
	drivertest.Run(t, drivertest.Config{
		Open:    func(t testing.TB) driver.Driver { return slow{openAt(t, url, opts...)} },
		Advance: func(d time.Duration) { s.Advance(scale * d) },
		Wrap: func(t *testing.T, row func(*testing.T)) {
			s = fakes3.New()
			s.Lack(lacks)
			s.Hold()
			url = urlOf(t, s.Start(t, 0).URL, "")
			row(t)
			rules(t, s.Log())
		},
		Without: drivertest.Watch,
	})
}

// rules compares requests with the published rules: a write has one condition, and a deletion at
// most one.
func rules(t *testing.T, log []fakes3.Request) {
	t.Helper()
	for _, r := range log {
		if (r.IfMatch == "") == (r.IfNoneMatch == "") && r.Method == "PUT" || r.Method != "PUT" && r.IfNoneMatch != "" || r.Status == 501 {
			t.Errorf("%+v", r)
		}
	}
}

func TestTable(t *testing.T) {
	for name, lacks := range map[string]fakes3.Lacks{
		"full": fakes3.Complete, "no conditional deletes": fakes3.ConditionalDeletes, "ignored conditions of deletes": fakes3.IfMatchOfDelete,
	} {
		t.Run(name, func(t *testing.T) {
			s := fakes3.New()
			s.Lack(lacks)
			s.Hold()
			front := s.Start(t, 0)
			proof := warm(t, openAt(t, urlOf(t, front.URL, ""))).bucket.proof
			tabletest.Run(t, func(t testing.TB) roomdriver.Table {
				b := openAt(t, urlOf(t, front.URL, "")).bucket
				b.proof = proof // another row's sweep, an hour later, would remove a probe under way
				return later{table{roomdriver.FromSwapper(b), b}, s}
			})
		})
	}
}

// later sweeps an hour later: sweeps do not read younger records.
type later struct {
	table
	server *fakes3.Server
}

func (l later) Sweep(ctx context.Context, limit int) (int, error) {
	l.server.Advance(memory)
	return l.table.Sweep(ctx, limit)
}
