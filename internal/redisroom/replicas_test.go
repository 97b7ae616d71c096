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
)

// replicaTimeout is short where the tests have replicas that do not answer, and
// acknowledged is long where they do.
const (
	replicaTimeout = "timeout=10s&replica-timeout=300ms"
	acknowledged   = "timeout=10s&replica-timeout=5s"
)

// wantUnreplicated checks that a request failed for lack of replicas and that it left no lock.
func wantUnreplicated(t *testing.T, d store, key string, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrNotReplicated) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("acquire: %v, want ErrNotReplicated with ErrUnavailable", err)
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
func TestReplicas_R8_ServerWithoutWaitIsRefused(t *testing.T) {
	live.Test(t)
	t.Parallel()
	renamed := redistest.Start(t, "--rename-command", "WAIT", "")
	redistest.StartReplica(t, renamed)
	limited := redistest.Start(t)
	redistest.StartReplica(t, limited)
	noErr(t, limited.Client().Do(background, "ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all", "-wait", "-info").Err())
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
