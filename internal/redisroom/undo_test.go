package redisroom

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// replicated runs scripts like a lens, and reports how many replicas have acknowledged one.
type replicated struct {
	*lens
	acked int
	// during is called once before a command that is acknowledged is answered, and undo
	// once in place of the next command that is not.
	during func()
	undo   func() error
}

func (r *replicated) Run(ctx context.Context, cmds [][]string, _ Acks, each func(int, Answer)) {
	acked, during := r.acked, r.during
	r.during = nil
	r.lens.Run(ctx, cmds, Acks{}, func(i int, a Answer) {
		a.Acked = acked
		if during != nil {
			during()
		}
		each(i, a)
	})
}

func (r *replicated) Do(ctx context.Context, cmd []string) (any, error) {
	if _, known := r.texts[cmd[1]]; !known { // lua/replicas.lua asks for INFO
		return "slave0:state=online\r\n", nil
	}
	if undo := r.undo; undo != nil {
		r.undo = nil
		if err := undo(); err != nil {
			return nil, err
		}
	}
	return r.lens.Do(ctx, cmd)
}

func (r *replicated) store() *Store {
	return New(r, r, Options{Prefix: lensPrefix, Timeout: DefaultTimeout, Acks: &Acks{Replicas: 1, Timeout: time.Second}})
}

func newReplicated() (*replicated, *Store) {
	r := &replicated{lens: newLens(time.Now().UnixMicro()), acked: 1}
	return r, r.store()
}

func asking(id string, changes ...func(*driver.Request)) driver.Request {
	req := driver.Request{Key: lensKey, ID: id, TTL: time.Minute}
	allOf(changes...)(&req)
	return req
}

func mustAcquire(t *testing.T, s *Store, want driver.State, req driver.Request) driver.Reply {
	t.Helper()
	reply, err := s.Acquire(t.Context(), req)
	if err != nil || reply.State != want {
		t.Errorf("%s: %+v, %v, want state %d", req.ID, reply, err, want)
	}
	return reply
}

func renewOne(t *testing.T, s *Store, id string) (reply driver.Reply, err error) {
	ref := driver.Ref{Key: lensKey, ID: id, TTL: time.Minute, TicketTTL: time.Minute}
	s.Renew(t.Context(), []driver.Ref{ref}, func(_ int, r driver.Reply, e error) { reply, err = r, e })
	return reply, err
}

// wantDoubt checks that a request was not acknowledged, and that its error leaves its effect
// unknown.
func wantDoubt(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrNotReplicated) || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v, want ErrNotReplicated with an unknown effect", err)
	}
}

func wantHolders(t *testing.T, s *Store, n int) {
	t.Helper()
	if snap, err := s.Inspect(t.Context(), lensKey); err != nil || len(snap.Holders) != n {
		t.Errorf("%+v, %v, want %d", snap.Holders, err, n)
	}
}

// TestReplicas_R8_UndoEndsNoLeaseThatWasReported: a client asks again by another connection,
// or by another replica of a service. The first request is not acknowledged, and the other
// one, or a renewal, has reported the lease.
func TestReplicas_R8_UndoEndsNoLeaseThatWasReported(t *testing.T) {
	request := asking("a", visiting("v"))
	for name, row := range map[string]struct {
		late bool // the undo is on its way before the other request
		tell func(t *testing.T, r *replicated, s *Store)
	}{
		"the same visit": {false, func(t *testing.T, _ *replicated, s *Store) { mustAcquire(t, s, driver.Granted, request) }},
		"a renewal": {false, func(t *testing.T, _ *replicated, s *Store) {
			if reply, err := renewOne(t, s, "a"); err != nil || reply.State != driver.Granted {
				t.Errorf("%+v, %v", reply, err)
			}
		}},
		"another visit": {false, func(t *testing.T, r *replicated, _ *Store) {
			mustAcquire(t, r.store(), driver.Granted, asking("a", visiting("w")))
		}},
		"another visit, late": {true, func(t *testing.T, r *replicated, _ *Store) {
			mustAcquire(t, r.store(), driver.Granted, asking("a", visiting("w")))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := newReplicated()
			r.acked = 0
			tell := func() {
				r.acked = 1
				row.tell(t, r, s)
			}
			if row.late {
				r.undo = func() error { tell(); return nil }
			} else {
				r.during = tell
			}
			_, err := s.Acquire(t.Context(), request)
			wantDoubt(t, err)
			wantHolders(t, s, 1)
		})
	}
}

// TestReplicas_R8_LeaseThatIsBeingUndoneIsNotReported: the answer of a request that overlaps
// an undo would be true for a moment only.
func TestReplicas_R8_LeaseThatIsBeingUndoneIsNotReported(t *testing.T) {
	r, s := newReplicated()
	r.acked = 0
	r.undo = func() error {
		r.acked = 1
		if reply, err := s.Acquire(t.Context(), asking("a")); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("acquire: %+v, %v, want ErrUnavailable", reply, err)
		}
		_, err := renewOne(t, s, "a")
		wantDoubt(t, err)
		return nil
	}
	if _, err := s.Acquire(t.Context(), asking("a")); !errors.Is(err, driver.ErrNotReplicated) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v, want ErrNotReplicated with ErrUnavailable", err)
	}
	wantHolders(t, s, 0)
	mustAcquire(t, s, driver.Granted, asking("a"))
}

// TestReplicas_LastOfOverlappingRequestsUndoes: two acquires of one visit overlap, and neither is
// acknowledged. The first one that ends may not undo, and the other one does.
func TestReplicas_LastOfOverlappingRequestsUndoes(t *testing.T) {
	r, s := newReplicated()
	r.acked = 0
	r.during = func() {
		_, err := s.Acquire(t.Context(), asking("a", visiting("v")))
		wantDoubt(t, err)
		wantHolders(t, s, 1)
	}
	if _, err := s.Acquire(t.Context(), asking("a", visiting("v"))); !errors.Is(err, driver.ErrNotReplicated) {
		t.Errorf("%v, want ErrNotReplicated", err)
	}
	wantHolders(t, s, 0)
	if n := len(s.acks.pending); n != 0 {
		t.Errorf("%d leases are still pending", n)
	}
}

// TestReplicas_RenewalWithALateAnswerKeepsTheLease: the server executes the renewal before the
// acquire could undo its grant, and the answer is handled after the acquire has ended.
func TestReplicas_RenewalWithALateAnswerKeepsTheLease(t *testing.T) {
	r, s := newReplicated()
	r.acked = 0
	gate, executed, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r.during = func() {
		r.acked = 1
		r.during = func() { close(executed); <-gate }
		go func() {
			defer close(done)
			if reply, err := renewOne(t, s, "a"); err != nil || reply.State != driver.Granted {
				t.Errorf("renewal: %+v, %v, want Granted", reply, err)
			}
		}()
		<-executed
	}
	_, err := s.Acquire(t.Context(), asking("a"))
	wantDoubt(t, err)
	close(gate)
	<-done
	wantHolders(t, s, 1)
	if n := len(s.acks.pending); n != 0 {
		t.Errorf("%d leases are still pending", n)
	}
}

// TestReplicas_GrantWhoseWaitWasCutOffIsUncertain: an error of WAIT describes the
// acknowledgement and not the grant.
func TestReplicas_GrantWhoseWaitWasCutOffIsUncertain(t *testing.T) {
	for _, cause := range []error{driver.ErrClosed, driver.ErrUnavailable} {
		err := timing.Uncertain(newAcks(&Acks{Replicas: 1}).missing(Answer{AckErr: cause}))
		if timing.Definite(err) || !errors.Is(err, driver.ErrNotReplicated) {
			t.Errorf("%v: %v, want ErrNotReplicated with an unknown effect", cause, err)
		}
	}
}

// The request that undoes a grant may arrive late, and must not end a later grant of the
// same id and visit, nor a lease that a renewal has confirmed.
func TestReplicas_R8_IdOfAnUndoingOnItsWayIsOfNoMoreUse(t *testing.T) {
	r, s := newReplicated()
	r.acked, r.undo = 0, func() error { return errLost }
	_, err := s.Acquire(t.Context(), asking("a"))
	wantDoubt(t, err)
	r.acked = 1
	_, err = renewOne(t, s, "a")
	wantDoubt(t, err)
	mustAcquire(t, s, driver.Gone, asking("a"))
	mustAcquire(t, s, driver.Granted, asking("a", visiting("other")))
}

// TestReplicas_R8_LeaseThatIsAskedForAgainIsNotUndone: a lease that is requested again may be in
// use already.
func TestReplicas_R8_LeaseThatIsAskedForAgainIsNotUndone(t *testing.T) {
	for name, row := range map[string]struct {
		before []func(*driver.Request)
		waits  bool
		again  []func(*driver.Request)
	}{
		"alone": {}, "awaited": {waits: true}, "shared": {before: []func(*driver.Request){reads}, again: []func(*driver.Request){reads}},
		"downgraded": {again: []func(*driver.Request){reads}},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := newReplicated()
			first := mustAcquire(t, s, driver.Granted, asking("a", row.before...))
			if row.waits {
				mustAcquire(t, s, driver.Queued, asking("b", queues))
			}
			r.acked = 0
			_, err := s.Acquire(t.Context(), asking("a", row.again...))
			wantDoubt(t, err)
			r.acked = 1
			if again := mustAcquire(t, s, driver.Granted, asking("a", row.again...)); again.Token != first.Token {
				t.Errorf("token %d, then %d", first.Token, again.Token)
			}
		})
	}
}

func TestReplicas_R8_ReentryIsUndoneAlone(t *testing.T) {
	r, s := newReplicated()
	first := mustAcquire(t, s, driver.Granted, asking("outer", owner("me")))
	r.acked = 0
	if _, err := s.Acquire(t.Context(), asking("inner", owner("me"))); !errors.Is(err, driver.ErrNotReplicated) {
		t.Errorf("%v, want ErrNotReplicated", err)
	}
	wantHolders(t, s, 1)
	r.acked = 1
	if inner := mustAcquire(t, s, driver.Granted, asking("inner", owner("me"))); inner.Holds != 2 || inner.Token != first.Token {
		t.Errorf("%+v, want the second hold with token %d", inner, first.Token)
	}
}

func TestReplicas_R8_RenewalThatIsNotAcknowledgedIsNotConfirmed(t *testing.T) {
	r, s := newReplicated()
	mustAcquire(t, s, driver.Granted, asking("a"))
	mustAcquire(t, s, driver.Queued, asking("b", queues))
	r.acked = 0
	_, err := renewOne(t, s, "a")
	wantDoubt(t, err)
	for id, want := range map[string]driver.State{"b": driver.Queued, "nobody": driver.Gone} { // a renewal needs no acknowledgement for these
		if reply, err := renewOne(t, s, id); err != nil || reply.State != want {
			t.Errorf("%s: %+v, %v, want state %d", id, reply, err, want)
		}
	}
}

// A grant that was handed over is not acknowledged yet: the waiter has to ask.
func TestReplicas_HandedOverGrantIsAcknowledgedBeforeTheWaiterActs(t *testing.T) {
	var heard driver.Hint
	newAcks(&Acks{Replicas: 1}).hints(func(h driver.Hint) { heard = h })(driver.Hint{Kind: driver.HintGranted, ID: "b", Token: 5})
	if heard != (driver.Hint{Kind: driver.HintAsk, ID: "b"}) {
		t.Errorf("got %+v, want HintAsk", heard)
	}
}
