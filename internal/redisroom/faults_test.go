package redisroom_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

var background = context.Background()

func TestScriptFlush_R1_NobodyNotices(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(s.URL() + "?prefix=" + t.Name() + ":")
		flush := func() {
			noErr(t, s.Client().ScriptFlush(background).Err())
		}
		const n = 350
		refs := make([]driver.Ref, n)
		for i := range n {
			key := fmt.Sprint("k", i)
			acquire(t, d, request(key, "a"), driver.Granted)
			refs[i] = lease(key, "a")
		}
		for range 3 {
			flush()
			replies, errs := renewAll(d, refs)
			for i := range refs {
				if errs[i] != nil || replies[i].State != driver.Granted {
					t.Fatalf("renewal %d of a pipeline: %+v, %v", i, replies[i], errs[i])
				}
			}
		}
		flush()
		first := acquire(t, d, request("k0", "a"), driver.Granted)
		flush()
		if again := acquire(t, d, request("k0", "a"), driver.Granted); again.Token != first.Token {
			t.Errorf("token %d, then %d", first.Token, again.Token)
		}
		flush()
		release(t, d, "k0", "a", driver.Released)
		flush()
		if _, err := d.Inspect(background, "k1"); err != nil {
			t.Error(err)
		}
		flush()
		if _, _, err := d.List(background, "", ""); err != nil {
			t.Error(err)
		}
		flush()
		if r, err := d.Break(background, "k1", "a", "why"); err != nil || r.State != driver.Released {
			t.Errorf("break: %+v, %v", r, err)
		}
	})
}

// TestList_ShowsLocksOfOthersUnderAPrefix: without other marks, the prefix of the listing
// distinguishes locks from caches.
func TestList_ShowsLocksOfOthersUnderAPrefix(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client()
	eachClient(t, func(t *testing.T, open func(string) store) {
		c.FlushAll(background)
		c.Set(background, "jobs:theirs", "secret", time.Minute)
		c.Set(background, "jobs:for ever", "no lock has no end", 0)
		c.HSet(background, "jobs:hash", "no", "lock")
		c.Set(background, "cache:page", "no lock", time.Minute)
		bare := open(s.URL() + "?prefix=")
		acquire(t, bare, request("jobs:ours", "a"), driver.Granted)
		for _, row := range []struct {
			store  string
			prefix string
			want   []string
		}{
			{"", "", []string{"jobs:ours"}},
			{"", "jobs:", []string{"jobs:ours", "jobs:theirs"}},
			{"jobs:", "", []string{"ours", "theirs"}},
		} {
			d := open(s.URL() + "?prefix=" + row.store)
			if keys := listed(t, d, row.prefix); !slices.Equal(keys, row.want) {
				t.Errorf("store %q, prefix %q: %q, want %q", row.store, row.prefix, keys, row.want)
			}
		}
	})
}

// R7
func TestServerDown_R7_IsUnavailableAtOnce(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(s.URL() + "?timeout=30s&prefix=" + t.Name() + ":")
		acquire(t, d, request("k", "a"), driver.Granted)
		s.Kill()
		// The first requests may find out that their connections are gone.
		eventually(t, "refused", func() bool {
			_, err := d.Acquire(background, request("k", "b"))
			_, errs := renewAll(d, []driver.Ref{lease("k", "a")})
			return errors.Is(err, driver.ErrUnavailable) && errors.Is(errs[0], driver.ErrUnavailable)
		})
		start := time.Now()
		_, _ = d.Acquire(background, request("k", "b"))
		_, _ = renewAll(d, []driver.Ref{lease("k", "a")})
		if took := time.Since(start); took > 10*time.Second {
			live.Late(t, "the refusals took %v, and a try may take longer than that", took)
		}
		s.Restart()
		eventually(t, "served again", func() bool {
			r, err := d.Acquire(background, request("k", "b"))
			return err == nil && r.State == driver.Granted
		})
	})
}

func TestNoRightToPublishOrSubscribe_WaitsByAsking(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		acl := func(user string, rules ...any) {
			args := append([]any{"ACL", "SETUSER", user, "on", ">pw"}, rules...)
			noErr(t, s.Client().Do(background, args...).Err())
		}
		acl("deaf", "~leasehold:*", "resetchannels", "+@all")
		acl("mute", "~leasehold:*", "&*", "+@all", "-publish")
		deaf, mute := open("redis://deaf:pw@"+s.Addr()), open("redis://mute:pw@"+s.Addr())
		key := t.Name()

		sub, err := deaf.Watch(func(driver.Hint) {})
		noErr(t, err)
		acquire(t, mute, request(key, "a"), driver.Granted)
		if a := sub.Address(); a != "" {
			t.Errorf("address %q of a subscription that is not permitted", a)
		}
		acquire(t, deaf, waiting(key, "b", ""), driver.Queued)
		acquire(t, mute, waiting(key, "c", "leasehold:wake:somebody"), driver.Queued)
		release(t, mute, key, "a", driver.Released)
		renew(t, deaf, lease(key, "b"), driver.Granted)
		release(t, deaf, key, "b", driver.Released)
		release(t, mute, key, "c", driver.Released)
	})
}

func TestNoRightToTheKeys_R7_SaysSo(t *testing.T) {
	s := redistest.Start(t)
	noErr(t, s.Client().Do(background, "ACL", "SETUSER", "other", "on", ">pw", "~other:*", "&*", "+@all").Err())
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open("redis://other:pw@" + s.Addr())
		if _, err := d.Acquire(background, request("k", "a")); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("acquire: %v, want ErrUnavailable", err)
		}
		acquire(t, open("redis://other:pw@"+s.Addr()+"?prefix=other:"), request("k", "a"), driver.Granted)
	})
}

func TestOutOfMemory_R7_RefusesAcquireButFreesAndRenews(t *testing.T) {
	s := redistest.Start(t)
	limit := func(n string) {
		noErr(t, s.Client().ConfigSet(background, "maxmemory", n).Err())
	}
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(s.URL() + "?prefix=" + t.Name() + ":")
		e := listen(t, d)
		acquire(t, d, request("lone", "a"), driver.Granted)
		acquire(t, d, request("queued", "a"), driver.Granted)
		acquire(t, d, waiting("queued", "b", e.Address()), driver.Queued)
		ahead := request("ahead", "a")
		ahead.MinToken = time.Now().Add(time.Hour).UnixMicro()
		acquire(t, d, ahead, driver.Granted)
		release(t, d, "ahead", "a", driver.Released)
		s.Client().Set(background, t.Name()+":\x1fm", "1 name", 0)
		limit("1")
		defer limit("0")

		guarded := request("guarded", "a")
		guarded.Guard = true
		for _, req := range []driver.Request{request("new", "a"), waiting("lone", "b", ""), request("ahead", "b"), guarded} {
			if _, err := d.Acquire(background, req); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "memory") {
				t.Errorf("acquire %s: %v, want ErrUnavailable that speaks of memory", req.Key, err)
			}
		}
		acquire(t, d, request("lone", "b"), driver.Busy)
		renew(t, d, lease("lone", "a"), driver.Granted)
		release(t, d, "lone", "a", driver.Released)
		renew(t, d, lease("queued", "a"), driver.Granted)
		release(t, d, "queued", "a", driver.Released)
		e.hear(t, driver.HintGranted, "b")
		renew(t, d, lease("queued", "b"), driver.Granted)
		release(t, d, "queued", "b", driver.Released)
		for _, key := range s.Keys(t) {
			if strings.HasSuffix(key, "lone") || strings.HasSuffix(key, "queued") {
				t.Errorf("the lock %q is left", key)
			}
		}
	})
}

func TestBusyScript_R7_IsUnavailable(t *testing.T) {
	s := redistest.Start(t, "--busy-reply-threshold", "50")
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(s.URL())
		acquire(t, d, request(t.Name(), "a"), driver.Granted)
		// Use a connection that exists already: a busy server accepts no new one.
		noErr(t, s.Client().Ping(background).Err())
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: -1, MaxRetries: -1})
		defer c.Close()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = c.Eval(background, "local t = redis.call('TIME')[1] + 10 while redis.call('TIME')[1] + 0 < t do end", nil).Err()
		}()
		eventually(t, "refused because of the script", func() bool {
			ctx, cancel := context.WithTimeout(background, time.Second)
			defer cancel()
			_, err := d.Acquire(ctx, request(t.Name(), "b"))
			return errors.Is(err, driver.ErrUnavailable) && strings.Contains(err.Error(), "BUSY")
		})
		noErr(t, s.Client().ScriptKill(background).Err())
		<-ended
		eventually(t, "served again", func() bool {
			r, err := d.Acquire(background, request(t.Name(), "b"))
			return err == nil && r.State == driver.Busy
		})
	})
}

func TestReplica_IsUnavailable(t *testing.T) {
	live.Test(t)
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	eachClient(t, func(t *testing.T, open func(string) store) {
		acquire(t, open(primary.URL()), request(t.Name(), "a"), driver.Granted)
		d := open(replica.URL())
		eventually(t, "refused by the replica", func() bool {
			_, err := d.Acquire(background, request(t.Name(), "b"))
			if !errors.Is(err, driver.ErrUnavailable) {
				// Until the lock has arrived there it may look free.
				t.Logf("acquire on a replica: %v", err)
			}
			return errors.Is(err, driver.ErrUnavailable) && strings.Contains(err.Error(), "replica")
		})
		if _, err := d.Release(background, lease(t.Name(), "a")); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("release: %v, want ErrUnavailable", err)
		}
	})
}

func TestSilentServer_CancelAndTimeoutReturn(t *testing.T) {
	live.Test(t)
	t.Parallel()
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		connected := func(timeout string) store {
			d := open(s.URL() + "?timeout=" + timeout + "&prefix=" + t.Name() + timeout + ":")
			acquire(t, d, request("k", "a"), driver.Granted)
			renew(t, d, lease("k", "a"), driver.Granted)
			return d
		}
		// While rueidis connects it does not look at the context; it takes half the
		// timeout at most.
		const long = 10 * time.Second
		patient, hasty := connected(long.String()), connected("500ms")
		s.Stop()
		defer s.Cont()

		calls := map[string]func(context.Context, store) error{
			"acquire": func(ctx context.Context, d store) error {
				_, err := d.Acquire(ctx, request("k", "b"))
				return err
			},
			"release": func(ctx context.Context, d store) error {
				_, err := d.Release(ctx, lease("k", "a"))
				return err
			},
			"renew": func(ctx context.Context, d store) (err error) {
				d.Renew(ctx, []driver.Ref{lease("k", "a")}, func(_ int, _ driver.Reply, e error) { err = e })
				return err
			},
		}
		for name, call := range calls {
			ctx, cancel := context.WithCancel(background)
			time.AfterFunc(20*time.Millisecond, cancel)
			start := time.Now()
			err := call(ctx, patient)
			if took := time.Since(start); took > long-time.Second {
				live.Late(t, "%s: cancelled after 20ms, returned after %v", name, took)
			}
			if err == nil || errors.Is(err, driver.ErrUnavailable) && name != "renew" && !strings.Contains(err.Error(), "connect") {
				t.Errorf("%s, cancelled: %v, want an error that leaves the outcome unknown", name, err)
			}

			start = time.Now()
			err = call(background, hasty)
			if took := time.Since(start); took > 10*time.Second {
				live.Late(t, "%s: returned after %v, the timeout is 500ms", name, took)
			}
			if err == nil {
				t.Errorf("%s: answered by a server that stands still", name)
			}
		}
	})
}

// TestSubscription_HR_H10_ComesBackAfterKillAndSilence is W3. The timeout of requests does not
// bound pings.
func TestSubscription_HR_H10_ComesBackAfterKillAndSilence(t *testing.T) {
	live.Test(t)
	t.Parallel()
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(s.URL() + "?timeout=1m&prefix=" + t.Name() + ":")
		e := listen(t, d)
		noErr(t, s.Client().ClientKillByFilter(background, "TYPE", "pubsub").Err())
		e.hear(t, driver.HintResync, "")

		s.Stop()
		eventually(t, "noticed that the server is silent", func() bool { return e.Address() == "" })
		s.Cont()
		e.hear(t, driver.HintResync, "")

		s.Kill()
		eventually(t, "noticed that the server is gone", func() bool { return e.Address() == "" })
		s.Restart()
		e.hear(t, driver.HintResync, "")

		eventually(t, "reached the server for calls as well", func() bool {
			_, err := d.Acquire(background, request("k", "a"))
			return err == nil
		})
		acquire(t, d, request("k", "a"), driver.Granted)
		acquire(t, d, waiting("k", "b", e.Address()), driver.Queued)
		release(t, d, "k", "a", driver.Released)
		e.hear(t, driver.HintGranted, "b")
		if _, err := d.Break(background, "k", "b", "why"); err != nil {
			t.Fatal(err)
		}
		e.hear(t, driver.HintBroken, "b")
		if reply := renew(t, d, lease("k", "b"), driver.Gone); !reply.Broken {
			t.Errorf("%+v", reply)
		}
		noErr(t, e.Close())
	})
}

func TestClose_EndsSubscriptions(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(s.URL())
		e := listen(t, d)
		noErr(t, d.Close())
		noErr(t, d.Close())
		noErr(t, e.Close())
		if _, err := d.Watch(func(driver.Hint) {}); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("watch: %v, want ErrClosed", err)
		}
	})
}

// A primary that becomes a replica keeps its connections. If a DNS name refers to the primary, as
// with some providers, only a new connection reaches its successor.
func TestAcquire_AServerThatHasBecomeAReplicaIsLeft(t *testing.T) {
	eachClient(t, func(t *testing.T, open func(string) store) {
		old, next := redistest.Start(t), redistest.Start(t)
		var leads atomic.Pointer[redistest.Server]
		leads.Store(old)
		d := open("redis://" + tcpproxy.Balance(t, func() string { return leads.Load().Addr() }).Addr())
		acquire(t, d, request("k", "a"), driver.Granted)
		renew(t, d, lease("k", "a"), driver.Granted)
		host, port, err := net.SplitHostPort(next.Addr())
		noErr(t, err)
		noErr(t, old.Client().Do(background, "REPLICAOF", host, port).Err())
		leads.Store(next)
		n := 0
		eventually(t, "granted by the successor", func() bool {
			n++
			_, err := d.Acquire(background, request(fmt.Sprint("other", n), "a"))
			return err == nil
		})
		eventually(t, "renewed by the successor", func() bool {
			_, errs := renewAll(d, []driver.Ref{lease("other1", "a")})
			return errs[0] == nil
		})
	})
}
