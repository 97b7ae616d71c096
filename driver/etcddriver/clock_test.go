package etcddriver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
)

// TestClock_NoLeaseEndsEarly begins leases in all phases of a second, by one process, and looks for their
// ends by another.
func TestClock_NoLeaseEndsEarly(t *testing.T) {
	t.Parallel()
	url := shared(t)
	holder, other := openURL(t, url), openURL(t, url)
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			time.Sleep(time.Duration(i) * 103 * time.Millisecond) // the phase
			req := request("a", time.Second)
			req.Key = fmt.Sprint(i)
			start := time.Now()
			acquire(t, holder, req)
			req.ID = "b"
			eventually(t, func() bool { return acquire(t, other, req).State == driver.Granted })
			if took := time.Since(start); took < time.Second {
				t.Errorf("a lease of 1s ended after %v", took)
			}
		})
	}
	all.Wait()
}

// late is by how much the lock of a dead holder opens late.
const late = margin + time.Second

// TestClock_CountsWhileNoProcessRuns is the job that comes once a day: no process has lived since
// the lease of the dead holder was granted.
func TestClock_CountsWhileNoProcessRuns(t *testing.T) {
	t.Parallel()
	url := shared(t)
	d := openURL(t, url)
	acquire(t, d, request("dead", time.Second))
	noError(t, d.Close())
	time.Sleep(time.Second + late + 100*time.Millisecond) // the test needs the store's clock to advance
	if reply := acquire(t, openURL(t, url), request("job", time.Second)); reply.State != driver.Granted {
		t.Errorf("%+v", reply)
	}
}

// TestClock_ALeaderChangeEndsNoLease compares processes from before and after a change of the leader: the
// new leader counts from the beginning.
func TestClock_ALeaderChangeEndsNoLease(t *testing.T) {
	live.Test(t)
	c := startCluster(t, 3)
	old := openURL(t, c.url())
	time.Sleep(2 * time.Second) // the age of the lease
	start := time.Now()
	first := acquire(t, old, request("old", 2*time.Second))
	before, err := old.table.look(t.Context(), "k")
	noError(t, err)
	c.moveLeader(t)
	young := openURL(t, c.url())
	eventually(t, func() bool { return acquire(t, young, request("young", 2*time.Second)).State == driver.Granted })
	if took := time.Since(start); took < 2*time.Second {
		t.Errorf("a lease of 2s ended after %v", took)
	}
	start = time.Now().Add(-time.Second / 2)
	c.moveLeader(t)
	var again driver.Reply
	eventually(t, func() bool {
		again = acquire(t, old, request("again", time.Second))
		return again.State == driver.Granted
	})
	if took := time.Since(start); took < 2*time.Second {
		t.Errorf("a lease of 2s ended after %v", took)
	}
	after, err := old.table.look(t.Context(), "k")
	noError(t, err)
	if after.epoch.rev == before.epoch.rev || after.now <= before.now || again.Token <= first.Token {
		t.Errorf("from %+v to %+v", before, after)
	}
}

// TestClock_NeverGoesBack restarts the server, so that another term begins, between locks that leave no record.
func TestClock_NeverGoesBack(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	last := int64(0)
	for range 2 {
		d := openURL(t, c.url())
		reply := acquire(t, d, request("a", time.Minute))
		if reply.Token <= last {
			t.Errorf("token %d follows %d", reply.Token, last)
		}
		last = reply.Token
		eventually(t, func() bool {
			_, now, err := d.table.Read(t.Context(), "k")
			return err == nil && now.UnixMilli() > last/1000
		})
		_, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"})
		noError(t, err)
		expect(t, d, "k", "")
		c[0].process.Kill()
		c[0].start(t)
		c.await(t)
	}
}

// TestClock_AnOldViewDecidesNothing writes by a view of the epoch before.
func TestClock_AnOldViewDecidesNothing(t *testing.T) {
	tab := openURL(t, shared(t)).table
	v, err := tab.look(t.Context(), "x")
	noError(t, err)
	noError(t, tab.begin(t.Context(), v))
	if done, err := tab.swap(t.Context(), "x", v, []byte("late")); done || err != nil {
		t.Error(done, err)
	}
}

// TestClock_ARevokedLeaseEndsNoLock revokes the lease that counts the time.
func TestClock_ARevokedLeaseEndsNoLock(t *testing.T) {
	url := shared(t)
	d := openURL(t, url)
	first := acquire(t, d, request("a", time.Minute))
	client := dial(t, url)
	defer client.Close()
	_, err := client.Revoke(t.Context(), d.table.epoch.Load().lease)
	noError(t, err)
	for _, d := range []*Driver{openURL(t, url), d} {
		if reply := acquire(t, d, request("b", time.Second)); reply.State != driver.Busy {
			t.Errorf("%+v", reply)
		}
	}
	_, err = d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"})
	noError(t, err)
	if reply := acquire(t, d, request("b", time.Second)); reply.State != driver.Granted || reply.Token <= first.Token {
		t.Errorf("%+v after %+v", reply, first)
	}
}

// TestClock_ProcessesBeginOneEpoch starts many processes on an empty store.
func TestClock_ProcessesBeginOneEpoch(t *testing.T) {
	c := startCluster(t, 1)
	var all sync.WaitGroup
	for i := range 20 {
		d := openURL(t, c.url())
		all.Go(func() {
			req := request("a", time.Minute)
			req.Key = fmt.Sprint(i)
			acquire(t, d, req)
		})
	}
	all.Wait()
	client := dial(t, c.url())
	defer client.Close()
	if list, err := client.Leases(t.Context()); err != nil || len(list.Leases) != 1 {
		t.Error(list, err)
	}
}

// TestClock_EqualRevisionsOfTwoClustersDiffer replaces a cluster by an empty one, in which another
// process begins the clock. Revision and term are the same as before.
func TestClock_EqualRevisionsOfTwoClustersDiffer(t *testing.T) {
	live.Test(t)
	c := startCluster(t, 1)
	old := openURL(t, c.url())
	first := acquire(t, old, request("a", time.Second))
	time.Sleep(3 * time.Second) // the age of the first lease
	c[0].forget(t)
	second := acquire(t, openURL(t, c.url()), request("b", 2*time.Second))
	if reply := acquire(t, old, request("c", time.Second)); reply.State == driver.Granted {
		t.Error("two holders")
	}
	if second.Token <= first.Token {
		t.Errorf("token %d follows %d", second.Token, first.Token)
	}
}

// forget replaces a server by an empty one.
func (m *member) forget(t *testing.T) {
	t.Helper()
	m.process.Kill()
	noError(t, os.RemoveAll(filepath.Join(m.dir, "data")))
	m.start(t)
}

// TestLook_AForeignKeyIsAMismatch has another program's value where the epoch is.
func TestLook_AForeignKeyIsAMismatch(t *testing.T) {
	url := shared(t)
	d := openURL(t, url)
	client := dial(t, url)
	defer client.Close()
	_, err := client.Put(context.Background(), d.table.prefix+epochKey, "noon")
	noError(t, err)
	if _, _, err := d.table.Read(t.Context(), "k"); err == nil {
		t.Error("no error")
	}
}
