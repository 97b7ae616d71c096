package redisroom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/test/microscope"
)

// wire is a client of the interpreter of the scripts on which every command and reply can be lost
// or refused. A command takes a millisecond.
type wire struct {
	*lens
	cluster bool
	changes uint64
	sent    int
	// before and after, if set, are called before and after the n'th command from now, counted
	// from 0. An error that they return is the outcome of the command.
	before, after func(n int) error
	from          int
}

func (w *wire) Cluster() bool   { return w.cluster }
func (w *wire) Changes() uint64 { return w.changes }
func (w *wire) Close() error    { return nil }

// faults puts faults before and after the commands from now on.
func (w *wire) faults(before, after func(n int) error) {
	w.before, w.after, w.from = before, after, w.sent
}

func (w *wire) Do(ctx context.Context, cmd []string) (any, error) {
	n := w.sent - w.from
	w.sent++
	w.pass(time.Millisecond)
	if w.before != nil {
		if err := w.before(n); err != nil {
			return nil, err
		}
	}
	reply, err := w.lens.Do(ctx, cmd)
	if w.after != nil {
		err = cmp.Or(w.after(n), err)
	}
	return reply, err
}

func (w *wire) Run(ctx context.Context, cmds [][]string, _ Acks, each func(int, Answer)) {
	for i, cmd := range cmds {
		reply, err := w.Do(ctx, cmd)
		each(i, Answer{Reply: reply, Err: err})
	}
}

func newWire(t *testing.T, cluster bool) (*wire, *Store) {
	t.Helper()
	w := &wire{lens: newLens(time.Now().UnixMicro()), cluster: cluster}
	s := w.open()
	t.Cleanup(func() { _ = s.Close() })
	return w, s
}

func (w *wire) open() *Store {
	return New(w, w, Options{Prefix: lensPrefix, Timeout: time.Second})
}

func simpleRequest(key, id string) driver.Request {
	return driver.Request{Key: key, ID: id, TTL: 10 * time.Second, ConfirmWindow: time.Second, Since: time.UnixMilli(1)}
}

// pair takes a lock and releases it, and returns the token.
func pair(t *testing.T, s *Store, key, id string) int64 {
	t.Helper()
	reply := mustAcquire(t, s, driver.Granted, simpleRequest(key, id))
	if _, err := s.Release(context.Background(), driver.Ref{Key: key, ID: id, Uncontended: reply.Uncontended}); err != nil {
		t.Fatal(err)
	}
	return reply.Token
}

// fallBack sets the counter to the value on a replica that lagged: the next grant is below the
// last one.
func (w *wire) fallBack(last int64) {
	w.server.Keys[lensPrefix+counterKey] = textUntil(fmt.Sprint(last-10), w.server.Now/1000+time.Hour.Milliseconds())
}

var errLost = errors.New("the connection was reset")

// TestAcquire_HR_A2_WhatFailsAfterAGrantIsNotDefinite refuses the second of the two calls that
// are made if the token of the first may have fallen back.
func TestAcquire_HR_A2_WhatFailsAfterAGrantIsNotDefinite(t *testing.T) {
	refusals := []error{
		ReplyError("READONLY You can't write against a read only replica."), ReplyError("OOM command not allowed when used memory > 'maxmemory'."),
		fmt.Errorf("%w: no free connection", driver.ErrUnavailable),
	}
	for _, refusal := range refusals {
		w, s := newWire(t, false)
		pair(t, s, "other", "first")
		last := pair(t, s, "k", "a")
		w.fallBack(last)
		w.faults(func(n int) error {
			if n == 0 {
				w.changes++ // it travels by a new connection
				return nil
			}
			return refusal
		}, nil)
		reply, err := s.Acquire(context.Background(), simpleRequest("k", "b"))
		switch {
		case err == nil && reply.Token <= last:
			t.Errorf("token %d follows %d", reply.Token, last)
		case err != nil && errors.Is(err, driver.ErrUnavailable):
			t.Errorf("%v excludes a grant, but the lock is taken", err)
		case err == nil:
			continue // it needed no second call
		}
		// A caller with an unknown outcome releases the lock.
		w.faults(nil, nil)
		released, err := s.Release(context.Background(), driver.Ref{Key: "k", ID: "b", RejectIDFor: time.Second})
		if err != nil || released.State != driver.Released {
			t.Errorf("release of the unknown: %+v, %v", released, err)
		}
	}
}

// TestAcquire_HR_A2_IsOneCall: an acquire in one call cannot fail half-way.
func TestAcquire_HR_A2_IsOneCall(t *testing.T) {
	ways := map[string]func(w *wire, last int64){
		"an old counter":            func(w *wire, last int64) { w.fallBack(last - time.Hour.Microseconds()) },
		"a counter below a reading": func(w *wire, last int64) { w.fallBack(last) },
		"a new connection":          func(w *wire, _ int64) { w.changes++ },
	}
	for name, way := range ways {
		w, s := newWire(t, false)
		last := pair(t, s, "k", "a")
		way(w, last)
		w.faults(nil, nil)
		reply, err := s.Acquire(context.Background(), simpleRequest("k", "b"))
		if err != nil || reply.Token <= last {
			t.Errorf("%s: %+v, %v after token %d", name, reply, err, last)
		}
		if n := w.sent - w.from; n != 1 {
			t.Errorf("%s: %d calls", name, n)
		}
	}
}

// A caller's minimum does not push the tokens of other locks ahead of the clock: a lost counter
// is seeded with it. Old data come back after a crash without an append-only file, and from a
// replica that lagged.
func TestTokens_P4_RiseOnAServerThatComesBackWithOldData(t *testing.T) {
	for what, lose := range map[string]func(w *wire, old microscope.Keys){
		"all is lost":         func(w *wire, _ microscope.Keys) { clear(w.server.Keys) },
		"the counter is lost": func(w *wire, _ microscope.Keys) { delete(w.server.Keys, lensPrefix+counterKey) },
		"old data come back":  func(w *wire, old microscope.Keys) { w.server.Keys, w.changes = old, w.changes+1 },
	} {
		w, s := newWire(t, false)
		last := make(map[string]int64)
		grant := func() {
			for _, key := range []string{"a", "b", "c"} {
				id := fmt.Sprint("after-", last[key])
				first := mustAcquire(t, s, driver.Granted, simpleRequest(key, id))
				if first.Token <= last[key] {
					t.Errorf("%s: %s: %+v follows token %d", what, key, first, last[key])
				}
				if again := pair(t, s, key, id); again != first.Token {
					t.Errorf("%s: %s: asked again: token %d; it had token %d", what, key, again, first.Token)
				}
				last[key] = first.Token
			}
		}
		grant()
		old := w.server.Keys.Clone()
		far := simpleRequest("far", "f")
		far.MinToken = w.server.Now + 900_000
		mustAcquire(t, s, driver.Granted, far)
		pair(t, s, "far", "f")
		for range 20 {
			grant()
		}
		lose(w, old)
		for range 5 {
			grant()
		}
	}
}

// TestTokens_HR_B1_RiseThoughNothingTellsOfAnotherServer sets counters back without a redirection,
// and in all but one way without a new connection.
func TestTokens_HR_B1_RiseThoughNothingTellsOfAnotherServer(t *testing.T) {
	ways := []struct {
		name    string
		cluster bool
		meet    func(t *testing.T, w *wire, s *Store)
	}{
		{"a node of a cluster takes over", true, func(*testing.T, *wire, *Store) {}},
		{"the server was a replica for a while", false, func(t *testing.T, w *wire, s *Store) {
			w.faults(func(int) error { return ReplyError("READONLY You can't write against a read only replica.") }, nil)
			if _, err := s.Acquire(context.Background(), simpleRequest("k", "refused")); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("%v, want ErrUnavailable", err)
			}
			w.faults(nil, nil)
		}},
		{"a release was not answered", false, func(t *testing.T, w *wire, s *Store) {
			w.faults(nil, func(int) error { return errLost })
			if _, err := s.Release(context.Background(), driver.Ref{Key: "k", ID: "none"}); !errors.Is(err, errLost) {
				t.Errorf("%v, want that the connection was reset", err)
			}
			w.faults(nil, nil)
		}},
		{"another caller has connected", false, func(_ *testing.T, w *wire, _ *Store) { w.changes++ }},
		{"the client was idle meanwhile", false, func(*testing.T, *wire, *Store) { clock.Advance(2 * silence) }},
	}
	for _, way := range ways {
		w, s := newWire(t, way.cluster)
		last := pair(t, s, "k", "a")
		for i := range 3 { // takeovers
			for range 20 {
				last = pair(t, s, "k", "b")
			}
			way.meet(t, w, s)
			w.fallBack(last)
			if token := pair(t, s, "k", "c"); token <= last {
				t.Errorf("%s, for the %d. time: token %d follows %d", way.name, i+1, token, last)
			}
		}
	}
}

// TestTokens_HR_B2_OfARepeatedAcquireAreComparedToo loses the answer to an acquire
// on a server that came back with old data.
func TestTokens_HR_B2_OfARepeatedAcquireAreComparedToo(t *testing.T) {
	w, s := newWire(t, false)
	last := pair(t, s, "k", "a")
	w.fallBack(last)
	w.changes++ // it was restarted, and another request has connected first
	pair(t, s, "other", "first")

	w.faults(nil, func(int) error { return errLost })
	if _, err := s.Acquire(context.Background(), simpleRequest("k", "b")); !errors.Is(err, errLost) {
		t.Fatalf("%v, want that the connection was reset", err)
	}
	w.faults(nil, nil)
	w.changes++ // replaces the connection that was reset
	reply, err := s.Acquire(context.Background(), simpleRequest("k", "b"))
	if err != nil || reply.State != driver.Granted || reply.Token <= last {
		t.Errorf("asked again: %+v, %v; want a token above %d", reply, err, last)
	}
}

// TestCounter_HR_B3_TokenAheadOfTheClockStaysWithItsLock: it costs no further call, and the
// counter is not pushed ahead.
func TestCounter_HR_B3_TokenAheadOfTheClockStaysWithItsLock(t *testing.T) {
	w, s := newWire(t, false)
	req := simpleRequest("k", "raised")
	req.MinToken = time.Now().Add(20 * time.Hour).UnixMicro()
	mustAcquire(t, s, driver.Granted, req)
	if _, err := s.Release(context.Background(), driver.Ref{Key: "k", ID: "raised"}); err != nil {
		t.Fatal(err)
	}
	s = w.open()
	defer s.Close()
	const pairs = 20
	w.faults(nil, nil)
	last := req.MinToken + 1
	for i := range pairs {
		if token := pair(t, s, "k", fmt.Sprint("a", i)); token <= last {
			t.Fatalf("token %d after %d", token, last)
		} else {
			last = token
		}
		if token := pair(t, s, "ordinary", fmt.Sprint("a", i)); token > time.Now().Add(time.Minute).UnixMicro() {
			t.Fatalf("token %d of another lock, which is more than a minute ahead", token)
		}
	}
	if n := w.sent - w.from; n > 4*pairs+4 {
		t.Errorf("%d pairs cost %d calls", 2*pairs, n)
	}
}

// TestRelease_HR_A2_WhatFailsAfterAnUnknownIsNotDefinite loses the answer to a release by one key
// while a slot moves, and refuses the release by all keys.
func TestRelease_HR_A2_WhatFailsAfterAnUnknownIsNotDefinite(t *testing.T) {
	w, s := newWire(t, true)
	ctx := context.Background()
	mustAcquire(t, s, driver.Granted, simpleRequest("k", "a"))
	var alone bool
	w.faults(func(n int) error {
		switch n {
		case 0:
			return ReplyError("TRYAGAIN Multiple keys request during rehashing of slot")
		case 1:
			alone = true
			return nil
		}
		return ReplyError("CLUSTERDOWN The cluster is down")
	}, func(int) error { return errLost })
	_, err := s.Release(ctx, driver.Ref{Key: "k", ID: "a"})
	if !alone || err == nil || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v excludes a release, but the lock has been released", err)
	}
}
