package redisroom_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// slowServer answers renewals slowly.
type slowServer struct {
	redisroom.Client // the rest is not asked for
	cluster          bool
	flying           atomic.Int64
}

func (s *slowServer) Cluster() bool { return s.cluster }
func (s *slowServer) Close() error  { return nil }

func (s *slowServer) Run(_ context.Context, cmds [][]string, _ redisroom.Acks, each func(int, redisroom.Answer)) {
	s.flying.Add(1)
	defer s.flying.Add(-1)
	time.Sleep(time.Second)
	for i := range cmds {
		each(i, redisroom.Answer{Err: driver.ErrUnavailable})
	}
}

func TestRenew_OfVeryManyLeasesTakesTurnsOnOneServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &slowServer{}
		d := redisroom.New(srv, srv, redisroom.Options{})
		defer d.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer cancel()
		refs := make([]driver.Ref, 150) // more than one script call renews
		for i := range refs {
			refs[i] = lease(fmt.Sprint(i), "a")
		}
		var answers atomic.Int64
		var wg sync.WaitGroup
		renew := func(refs []driver.Ref) {
			wg.Go(func() { d.Renew(ctx, refs, func(int, driver.Reply, error) { answers.Add(1) }) })
		}
		for range 100 {
			renew(refs)
		}
		time.Sleep(500 * time.Millisecond)
		if got := srv.flying.Load(); got != 4 {
			t.Errorf("%d renewals at a time, want 4", got)
		}
		renew(refs[:1]) // a confirmation does not queue behind them
		synctest.Wait()
		if got := srv.flying.Load(); got != 5 {
			t.Errorf("%d at a time with a small one, want 5", got)
		}
		wg.Wait()
		if got := answers.Load(); got != 100*150+1 {
			t.Errorf("%d answers: calls whose time is over get one, too", got)
		}
	})
}

func TestRenew_ANodeThatHangsDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &slowServer{cluster: true}
		d := redisroom.New(srv, srv, redisroom.Options{})
		defer d.Close()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				d.Renew(t.Context(), []driver.Ref{lease("a", "a"), lease("b", "a")}, func(int, driver.Reply, error) {})
			})
		}
		synctest.Wait()
		if got := srv.flying.Load(); got != 20 {
			t.Errorf("%d renewals at a time, want 20", got)
		}
		wg.Wait()
	})
}
