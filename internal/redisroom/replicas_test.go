package redisroom_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redisroom"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/respproxy"
)

// replicaTimeout is short where the tests have replicas that do not answer, and
// acknowledged is long where they do.
const (
	replicaTimeout = "timeout=10s&replica-timeout=300ms"
	acknowledged   = "timeout=10s&replica-timeout=5s"
)

// wantUnreplicated checks that a request failed for want of replicas and that
// nothing of it is left.
func wantUnreplicated(t *testing.T, d store, key string, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrNotReplicated) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("acquire: %v, want ErrNotReplicated that leaves nothing", err)
	}
	wantNobody(t, d, key)
}

func wantNobody(t *testing.T, d store, key string) {
	t.Helper()
	snap, err := d.Inspect(background, key)
	if err != nil || len(snap.Holders)+len(snap.Waiters) > 0 {
		t.Errorf("left behind: %+v, %v", snap, err)
	}
}

func TestReplicas_HaveEveryGrantThatIsAnswered(t *testing.T) {
	live.Test(t)
	t.Parallel()
	primary := redistest.Start(t)
	replicas := []*redistest.Server{redistest.StartReplica(t, primary), redistest.StartReplica(t, primary)}
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(primary.URL() + "?replicas=2&" + acknowledged + "&prefix=" + t.Name())
		for i := range 100 {
			key := fmt.Sprint("k", i)
			acquire(t, d, request(key, "a"), driver.Granted)
			for _, r := range replicas {
				if value := r.Client().Get(background, t.Name()+key).Val(); !strings.HasPrefix(value, "a ") {
					t.Fatalf("%s: a replica has %q", key, value)
				}
			}
			renew(t, d, driver.Ref{Key: key, ID: "a", TTL: time.Hour}, driver.Granted)
			for _, r := range replicas {
				if left := r.Client().PTTL(background, t.Name()+key).Val(); left < time.Minute {
					t.Fatalf("%s: a replica keeps it for %v after its renewal", key, left)
				}
			}
		}
	})
}

// R8
func TestReplicas_R8_NoneConnectedFailsAtOnce(t *testing.T) {
	live.Test(t)
	t.Parallel()
	primary := redistest.Start(t)
	one := redistest.Start(t)
	redistest.StartReplica(t, one)
	eachClient(t, func(t *testing.T, open func(string) store) {
		for url, want := range map[string]string{
			primary.URL() + "?replicas=1": "0 of 1 replicas are connected",
			one.URL() + "?replicas=2":     "1 of 2 replicas are connected",
		} {
			d := open(url + "&" + acknowledged)
			start := time.Now()
			_, err := d.Acquire(background, request("k", "a"))
			if took := time.Since(start); took > 4*time.Second {
				live.Late(t, "failed after %v", took)
			}
			wantUnreplicated(t, d, "k", err)
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	})
}

// R8
func TestReplicas_R8_LaggingUndoesTheGrant(t *testing.T) {
	live.Test(t)
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(primary.URL() + "?replicas=1&" + replicaTimeout + "&prefix=" + t.Name())
		patient := open(primary.URL() + "?replicas=1&" + acknowledged + "&prefix=" + t.Name())
		owner := func(id string) driver.Request {
			req := request("owned", id)
			req.Owner, req.Reenter = "me", true
			return req
		}
		first := acquire(t, patient, owner("outer"), driver.Granted)

		replica.Stop()
		defer replica.Cont()
		for range 2 { // as often as it is asked
			_, err := d.Acquire(background, request("free", "a"))
			wantUnreplicated(t, d, "free", err)
		}
		if _, err := d.Acquire(background, owner("inner")); !errors.Is(err, driver.ErrNotReplicated) {
			t.Errorf("re-entry: %v, want ErrNotReplicated", err)
		}
		if snap, err := d.Inspect(background, "owned"); err != nil || len(snap.Holders) != 1 || snap.Holders[0].ID != "outer" {
			t.Errorf("after a re-entry that was not acknowledged: %+v, %v", snap.Holders, err)
		}
		acquire(t, d, request("owned", "stranger"), driver.Busy)

		replica.Cont()
		acquire(t, patient, request("free", "a"), driver.Granted)
		if inner := acquire(t, patient, owner("inner"), driver.Granted); inner.Holds != 2 || inner.Token != first.Token {
			t.Errorf("re-entry: %+v, want the second hold with token %d", inner, first.Token)
		}
		release(t, d, "owned", "inner", driver.Released)
		release(t, d, "owned", "outer", driver.Released)
		release(t, d, "free", "a", driver.Released)
	})
}

// R8: what is repeated may be in use already.
func TestReplicas_R8_LeaseThatIsAskedForAgainIsNotUndone(t *testing.T) {
	live.Test(t)
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(primary.URL() + "?replicas=1&" + replicaTimeout + "&prefix=" + t.Name())
		patient := open(primary.URL() + "?replicas=1&" + acknowledged + "&prefix=" + t.Name())
		alone := acquire(t, patient, request("alone", "a"), driver.Granted)
		acquire(t, patient, request("awaited", "a"), driver.Granted)
		acquire(t, patient, waiting("awaited", "b", ""), driver.Queued)
		shared := request("shared", "a")
		shared.Mode = driver.Shared
		acquire(t, patient, shared, driver.Granted)
		down := acquire(t, patient, request("down", "a"), driver.Granted)

		replica.Stop()
		defer replica.Cont()
		downgrade := request("down", "a")
		downgrade.Mode = driver.Shared
		for _, req := range []driver.Request{request("alone", "a"), request("awaited", "a"), shared, downgrade} {
			_, err := d.Acquire(background, req)
			if !errors.Is(err, driver.ErrNotReplicated) || errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("%s again: %v, want ErrNotReplicated that says nothing of its effect", req.Key, err)
			}
		}
		replica.Cont()
		for _, key := range []string{"alone", "awaited", "shared", "down"} {
			renew(t, patient, lease(key, "a"), driver.Granted)
		}
		if again := acquire(t, patient, request("alone", "a"), driver.Granted); again.Token != alone.Token {
			t.Errorf("token %d, then %d", alone.Token, again.Token)
		}
		if again := acquire(t, patient, downgrade, driver.Granted); again.Token != down.Token {
			t.Errorf("token %d, then %d", down.Token, again.Token)
		}
	})
}

// R8: the request that undoes a grant may arrive late, and must not take the
// lock from whoever got it under the same id meanwhile.
func TestReplicas_R8_IdOfAnUndoingOnItsWayIsOfNoMoreUse(t *testing.T) {
	live.Test(t)
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	proxy := respproxy.Start(t, primary.Addr())
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open("redis://" + proxy.Addr() + "?timeout=4s&replicas=1&replica-timeout=300ms&prefix=" + t.Name())
		acquire(t, open(primary.URL()), request(t.Name(), "a"), driver.Granted) // the scripts are known from here on
		release(t, open(primary.URL()), t.Name(), "a", driver.Released)
		replica.Stop()
		defer replica.Cont()
		held := proxy.Add(respproxy.Hold, 1, func(c respproxy.Call) bool {
			last := len(c.Args) - 1
			return last > 0 && string(c.Args[last]) == "a " // a release has nothing but the id
		})
		defer held.Release()
		_, err := d.Acquire(background, request("k", "a"))
		if !errors.Is(err, driver.ErrNotReplicated) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%v, want ErrNotReplicated that says nothing of its effect", err)
		}
		replica.Cont()
		acquire(t, d, request("k", "a"), driver.Gone)
		held.Release()
		eventually(t, "undone", func() bool {
			snap, err := d.Inspect(background, "k")
			return err == nil && len(snap.Holders) == 0
		})
	})
}

// R8
func TestReplicas_R8_RenewalThatIsNotAcknowledgedIsNotConfirmed(t *testing.T) {
	live.Test(t)
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(primary.URL() + "?replicas=1&" + replicaTimeout + "&prefix=" + t.Name())
		patient := open(primary.URL() + "?replicas=1&" + acknowledged + "&prefix=" + t.Name())
		acquire(t, patient, request("k", "a"), driver.Granted)
		acquire(t, patient, waiting("k", "b", ""), driver.Queued)
		replica.Stop()
		defer replica.Cont()
		replies, errs := renewAll(d, []driver.Ref{lease("k", "a"), lease("k", "b"), lease("k", "nobody")})
		if !errors.Is(errs[0], driver.ErrNotReplicated) || errors.Is(errs[0], driver.ErrUnavailable) {
			t.Errorf("lease: %+v, %v, want ErrNotReplicated", replies[0], errs[0])
		}
		if errs[1] != nil || replies[1].State != driver.Queued {
			t.Errorf("ticket: %+v, %v, want it queued: nobody acts on that", replies[1], errs[1])
		}
		if errs[2] != nil || replies[2].State != driver.Gone {
			t.Errorf("unknown id: %+v, %v, want it gone", replies[2], errs[2])
		}
		replica.Cont()
		renew(t, patient, lease("k", "a"), driver.Granted)
	})
}

func TestReplicas_HandedOverGrantIsAcknowledgedBeforeTheWaiterActs(t *testing.T) {
	live.Test(t)
	t.Parallel()
	primary := redistest.Start(t)
	redistest.StartReplica(t, primary)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(primary.URL() + "?replicas=1&" + acknowledged + "&prefix=" + t.Name())
		e := listen(t, d)
		acquire(t, d, request("k", "a"), driver.Granted)
		req := waiting("k", "b", e.Address())
		req.ConfirmWindow = 10 * time.Second
		acquire(t, d, req, driver.Queued)
		release(t, d, "k", "a", driver.Released)
		for {
			h := <-e.hints
			if h.Kind == driver.HintGranted {
				t.Fatal("a wake-up says that the room is the waiter's, and no replica has heard of it")
			}
			if snap, err := d.Inspect(background, "k"); err == nil && len(snap.Holders) == 1 && snap.Holders[0].ID == "b" {
				break
			}
		}
		renew(t, d, lease("k", "b"), driver.Granted)
		release(t, d, "k", "b", driver.Released)
	})
}

// R8
func TestReplicas_R8_ServerWithoutWaitIsRefused(t *testing.T) {
	live.Test(t)
	t.Parallel()
	renamed := redistest.Start(t, "--rename-command", "WAIT", "")
	redistest.StartReplica(t, renamed)
	limited := redistest.Start(t)
	redistest.StartReplica(t, limited)
	if err := limited.Client().Do(background, "ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all", "-wait", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	eachClient(t, func(t *testing.T, open func(string) store) {
		for name, url := range map[string]string{"renamed": renamed.URL(), "not permitted": "redis://u:pw@" + limited.Addr()} {
			d := open(url + "?replicas=1&" + acknowledged + "&prefix=" + t.Name())
			_, err := d.Acquire(background, request("k", "a"))
			if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "does not offer WAIT") {
				t.Errorf("%s: %v, want ErrUnsupported that speaks of WAIT", name, err)
			}
			wantNobody(t, d, "k")
			plain := open(url + "?prefix=" + t.Name())
			acquire(t, plain, request("k", "b"), driver.Granted)
			if _, errs := renewAll(d, []driver.Ref{lease("k", "b")}); !errors.Is(errs[0], driver.ErrNotReplicated) || errors.Is(errs[0], errors.ErrUnsupported) {
				t.Errorf("%s: renew: %v, want ErrNotReplicated, and another try", name, errs[0])
			}
			release(t, plain, "k", "b", driver.Released)
		}
	})
}

func TestReplicas_OfAClusterAcknowledgeForTheirOwnSlots(t *testing.T) {
	live.Test(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	replicas := c.AddReplicas(c.Nodes[:3]...)
	eachClient(t, func(t *testing.T, open func(string) store) {
		prefix := t.Name() + ":"
		d := open(clusterURL(c, "replicas=1&"+replicaTimeout+"&prefix="+prefix))
		patient := open(clusterURL(c, "replicas=1&"+acknowledged+"&prefix="+prefix))
		var refs []driver.Ref
		for i := range 60 {
			ref := lease(fmt.Sprint("k", i), "a")
			acquire(t, patient, request(ref.Key, ref.ID), driver.Granted)
			refs = append(refs, ref)
		}
		if _, errs := renewAll(patient, refs); errors.Join(errs...) != nil {
			t.Fatal(errors.Join(errs...))
		}
		replicas[1].Stop()
		defer replicas[1].Cont()
		_, errs := renewAll(d, refs)
		short := 0
		for i, ref := range refs {
			slot := redisroom.Slot(prefix + ref.Key)
			if lagging := slot >= 16384/3 && slot < 2*16384/3; lagging != (errs[i] != nil) || lagging && !errors.Is(errs[i], driver.ErrNotReplicated) {
				t.Errorf("renewal of slot %d: %v", slot, errs[i])
			} else if lagging {
				short++
			}
		}
		if short == 0 || short == len(refs) {
			t.Errorf("%d of %d leases have the replica that lags", short, len(refs))
		}
		for i := range 9 {
			key := fmt.Sprint("new", i)
			slot := redisroom.Slot(prefix + key)
			_, err := d.Acquire(background, request(key, "a"))
			if lagging := slot >= 16384/3 && slot < 2*16384/3; lagging {
				wantUnreplicated(t, d, key, err)
			} else if err != nil && !errors.Is(err, driver.ErrNotReplicated) { // slow, perhaps
				t.Errorf("acquire in slot %d: %v", slot, err)
			}
		}
	})
}

// TestReplicas_UndoEndsNoLeaseThatAnotherVisitWasTold: two replicas of a service ask for one
// lease of a client. The undo of the first arrives after the second has told the client.
func TestReplicas_UndoEndsNoLeaseThatAnotherVisitWasTold(t *testing.T) {
	live.Test(t)
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	proxy := respproxy.Start(t, primary.Addr())
	eachClient(t, func(t *testing.T, open func(string) store) {
		a := open("redis://" + proxy.Addr() + "?timeout=4s&replicas=1&replica-timeout=300ms&prefix=" + t.Name())
		b := open(primary.URL() + "?replicas=1&" + acknowledged + "&prefix=" + t.Name())
		ask := func(visit string) driver.Request {
			req := request("k", "a")
			req.Visit, req.TTL = visit, time.Minute
			return req
		}
		acquire(t, b, request("known", "a"), driver.Granted) // the scripts are known from here on
		release(t, b, "known", "a", driver.Released)
		defer replica.Cont()
		for _, late := range []bool{false, true} {
			replica.Stop()
			held := proxy.Add(respproxy.Hold, 1, func(c respproxy.Call) bool {
				return strings.Contains(string(c.Args[len(c.Args)-1]), "0 0 A/1") // a release
			})
			undone := make(chan error, 1)
			go func() {
				_, err := a.Acquire(background, ask("A/1"))
				undone <- err
			}()
			if late {
				if err := <-undone; !errors.Is(err, driver.ErrNotReplicated) {
					t.Errorf("%v, want ErrNotReplicated", err)
				}
			} else {
				held.WaitFired(t, 1)
			}
			replica.Cont()
			acquire(t, b, ask("B/1"), driver.Granted)
			held.Release()
			if !late {
				if err := <-undone; !errors.Is(err, driver.ErrNotReplicated) || errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("%v, want ErrNotReplicated that says nothing of its effect", err)
				}
			}
			acquire(t, b, request("k", "stranger"), driver.Busy)
			release(t, b, "k", "a", driver.Released)
		}
	})
}
