package locktest_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/filedriver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/postgresdriver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// The tests of this file run the library on real stores, in real time. A broken promise is an
// error at once. Lateness is no error, except that an act of more than a minute counts as
// hanging.

// realStore is a store on a server or a directory of its own.
type realStore struct {
	Store
	hang, goOn func() // stop the store from answering, and end that
}

var lives = []struct {
	name  string
	start func(t *testing.T) realStore
}{
	{"go-redis", func(t *testing.T) realStore {
		return onServer(t, func(url string) (driver.Driver, error) { return redisdriver.Open(url) })
	}},
	{"rueidis", func(t *testing.T) realStore { return onServer(t, onRueidis) }},
	{"PostgreSQL", liveOnPostgres},
	{"directory", liveOnDirectory},
	{"service on Redis", liveOnService},
}

// onLives plays a case on all real stores.
func onLives(t *testing.T, run func(l *lab, s realStore)) {
	t.Helper()
	for _, s := range lives {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s := s.start(t)
			s.real = true
			playCase(t, s.Store, row{"k", func(l *lab) { run(l, s) }})
		})
	}
}

func TestLive_W1_NeverTwoHoldersAndTokensRise(t *testing.T) {
	live.Test(t)
	t.Parallel()
	onLives(t, func(l *lab, _ realStore) { crowd(l) })
}

func TestLive_L9_ReleaseRacesWithRenewal(t *testing.T) {
	live.Test(t)
	t.Parallel()
	onLives(t, func(l *lab, _ realStore) { releaseRaces(l) })
}

func TestLive_P6_WaitersAreServedInOrder(t *testing.T) {
	live.Test(t)
	t.Parallel()
	onLives(t, func(l *lab, _ realStore) { evenness(l) })
}

// TestLive_L5_StoreThatHangsLosesByTheLocalDeadline checks the lease in a tight loop, so that it
// would see a moment in which the lease is live after its deadline.
func TestLive_L5_StoreThatHangsLosesByTheLocalDeadline(t *testing.T) {
	live.Test(t)
	t.Parallel()
	onLives(t, func(l *lab, s realStore) {
		// It is renewed so often that no pause of a busy machine makes it expire before.
		a, _ := l.client(leasehold.WithTTL(8*time.Second), leasehold.WithRenewFraction(0.02), leasehold.WithReleaseTimeout(time.Second))
		b, _ := l.client()
		lease := l.lock(a)
		first := lease.Deadline()
		eventually(l.TB, patience, func() bool { return lease.Deadline().After(first) }, func() string { return "it is not renewed" })
		s.hang()
		for end := time.Now().Add(patience); lease.Context().Err() == nil; time.Sleep(time.Millisecond) {
			now, deadline := time.Now(), lease.Deadline()
			if now.After(deadline) && lease.Context().Err() == nil && lease.Deadline().Equal(deadline) {
				l.Errorf("it is %v after its deadline", lease.State())
			}
			if now.After(end) {
				l.Fatal("it is not lost")
			}
		}
		if early := time.Until(lease.Deadline()); early > 0 {
			l.Errorf("it was lost %v before its deadline", early)
		}
		l.ended(lease, patience)
		l.wantErr(context.Cause(lease.Context()), leasehold.ErrLost)
		s.goOn()
		next := l.lock(b)
		if next.Token() <= lease.Token() {
			l.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		l.release(next)
	})
}

func onRueidis(url string) (driver.Driver, error) { return rueidisdriver.Open(url) }

// opens returns a store with drivers that a function opens.
func opens(open func() (driver.Driver, error)) Store {
	return Store{Open: func(tb testing.TB) driver.Driver {
		tb.Helper()
		d, err := open()
		if err != nil {
			tb.Fatal(err)
		}
		return d
	}}
}

func onServer(t *testing.T, open func(url string) (driver.Driver, error)) realStore {
	server := redistest.Start(t)
	s := opens(func() (driver.Driver, error) { return open(server.URL()) })
	s.Ends = func(tb testing.TB) { endsByItself(tb, server) }
	return realStore{s, server.Stop, server.Cont}
}

// endsByItself checks that no lock is left, and that the fencing counters and records expire: an
// hour after the last time that they store.
func endsByItself(tb testing.TB, server *redistest.Server) {
	tb.Helper()
	const gone time.Duration = -2 // since it was listed
	for _, key := range server.Keys(tb) {
		ttl := server.Client().PTTL(context.Background(), key).Val()
		if ttl != gone && (!strings.Contains(key, "\x1f") || ttl <= 0 || ttl > time.Hour+2*time.Minute) {
			tb.Errorf("left: %q, time to live %v", key, ttl)
		}
	}
}

func liveOnPostgres(t *testing.T) realStore {
	server := postgrestest.Start(t)
	s := opens(func() (driver.Driver, error) { return postgresdriver.Open(server.URL() + "&create=true") })
	return realStore{s, func() { server.Stop(t) }, func() { server.Cont(t) }}
}

// liveOnDirectory returns a directory that hangs while the locks of all its shards are held, as
// by a process that was stopped during a write.
func liveOnDirectory(t *testing.T) realStore {
	dir := t.TempDir()
	var locks []*flock.Flock
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	hang := func() {
		paths, err := filepath.Glob(filepath.Join(dir, "locks", "[0-9a-f][0-9a-f]"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%d locks, %v", len(paths), err)
		}
		for _, path := range paths {
			locks = append(locks, flock.New(path))
			must(locks[len(locks)-1].Lock())
		}
	}
	goOn := func() {
		for _, lock := range locks {
			must(lock.Unlock())
		}
	}
	return realStore{opens(func() (driver.Driver, error) { return filedriver.Open(dir) }), hang, goOn}
}

func liveOnService(t *testing.T) realStore {
	s := onServer(t, onRueidis)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, s.Open(t), listener)
	s.Open = opens(func() (driver.Driver, error) { return httpdriver.Open("http://" + listener.Addr().String()) }).Open
	return s
}
