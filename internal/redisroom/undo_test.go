package redisroom

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// replicated runs scripts like a lens, and tells how many replicas acknowledge each. While
// one is answered, a test may send others.
type replicated struct {
	*lens
	acked []int
	then  []func()
	undo  func() // is called before a command without replicas, unless it is nil
}

func (r *replicated) Run(ctx context.Context, cmds [][]string, want Acks, each func(int, Answer)) {
	if want.Replicas == 0 {
		r.lens.Run(ctx, cmds, want, each)
		return
	}
	acked, then := r.acked[0], r.then[0]
	r.acked, r.then = r.acked[1:], r.then[1:]
	r.lens.Run(ctx, cmds, want, func(i int, a Answer) {
		a.Acked = acked
		then()
		each(i, a)
	})
}

func (r *replicated) Do(ctx context.Context, cmd []string) (any, error) {
	if _, known := r.texts[cmd[1]]; !known { // lua/replicas.lua asks for INFO
		return "slave0:state=online\r\n", nil
	}
	if r.undo != nil {
		r.undo()
	}
	return r.lens.Do(ctx, cmd)
}

func newReplicated(acked ...int) (*replicated, *Store) {
	l := newLens(time.Now().UnixMicro())
	r := &replicated{lens: l, acked: acked, then: make([]func(), len(acked))}
	for i := range r.then {
		r.then[i] = func() {}
	}
	return r, New(Config{Main: r, Renew: r, Prefix: lensPrefix, Timeout: DefaultTimeout, Acks: Acks{Replicas: 1, Timeout: time.Second}})
}

// TestReplicas_UndoEndsNoLeaseThatItsOwnVisitWasTold: two requests of one visit are under way
// at once, as of a client that has asked again by another connection. The first is not
// acknowledged, after the other, or a renewal, has reported the lease.
func TestReplicas_UndoEndsNoLeaseThatItsOwnVisitWasTold(t *testing.T) {
	ctx := t.Context()
	req := driver.Request{Key: lensKey, ID: "a", Visit: "v", TTL: time.Minute}
	for name, other := range map[string]func(s *Store) (driver.Reply, error){
		"acquire": func(s *Store) (driver.Reply, error) { return s.Acquire(ctx, req) },
		"renewal": func(s *Store) (reply driver.Reply, err error) {
			s.Renew(ctx, []driver.Ref{{Key: lensKey, ID: "a", TTL: time.Minute}}, func(_ int, r driver.Reply, e error) { reply, err = r, e })
			return reply, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := newReplicated(0, 1)
			r.then[0] = func() {
				if reply, err := other(s); err != nil || reply.State != driver.Granted {
					t.Errorf("%+v, %v, want it granted", reply, err)
				}
			}
			if _, err := s.Acquire(ctx, req); !errors.Is(err, driver.ErrNotReplicated) || errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("%v, want ErrNotReplicated that says nothing of its effect", err)
			}
			if snap, err := s.Inspect(ctx, lensKey); err != nil || len(snap.Holders) != 1 {
				t.Errorf("a lease that was reported has ended: %+v, %v", snap.Holders, err)
			}
		})
	}
}

// TestReplicas_LeaseThatIsBeingUndoneIsNotReported: the answer of a request that overlaps an
// undo would be true for a moment only.
func TestReplicas_LeaseThatIsBeingUndoneIsNotReported(t *testing.T) {
	ctx := t.Context()
	req := driver.Request{Key: lensKey, ID: "a", Visit: "v", TTL: time.Minute}
	r, s := newReplicated(0, 1, 1)
	r.undo = func() {
		r.undo = nil
		if reply, err := s.Acquire(ctx, req); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("acquire: %+v, %v, want ErrUnavailable", reply, err)
		}
		s.Renew(ctx, []driver.Ref{{Key: lensKey, ID: "a", TTL: time.Minute}}, func(_ int, reply driver.Reply, err error) {
			if !errors.Is(err, driver.ErrNotReplicated) {
				t.Errorf("renewal: %+v, %v, want ErrNotReplicated", reply, err)
			}
		})
	}
	if _, err := s.Acquire(ctx, req); !errors.Is(err, driver.ErrNotReplicated) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v, want ErrNotReplicated that leaves nothing", err)
	}
	if reply, err := s.Acquire(ctx, req); err != nil || reply.State != driver.Granted {
		t.Errorf("after the undo: %+v, %v, want it granted", reply, err)
	}
}
