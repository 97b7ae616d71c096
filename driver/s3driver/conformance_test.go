package s3driver

import (
	"context"
	"testing"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/roomdriver/tabletest"
	"github.com/leasehold-go/leasehold/driver/s3driver/internal/fakes3"
	"github.com/leasehold-go/leasehold/internal/test/play"
)

func TestConformance(t *testing.T) {
	s := fakes3.New()
	url, bus := urlOf(t, s.Start(t, 0).URL, ""), new(roomdriver.Bus)
	play.Conformance(t, func(t testing.TB) play.Table {
		b := openAt(t, url).bucket
		return audible{table{roomdriver.FromSwapper(b), b}, bus}
	})
	rules(t, s.Log())
}

// audible is a table that sends the hints inside of a process that the suite needs.
type audible struct {
	table
	*roomdriver.Bus
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
