package redisroom_test

import (
	"context"
	"errors"
	"flag"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/await"
	"github.com/leasehold-go/leasehold/internal/test/leaktest"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func TestMain(m *testing.M) {
	// Parallel tests wait for servers most of the time, so the number of processors does not
	// matter.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	leaktest.Main(m,
		// go-redis keeps a coarse clock for as long as the process lives.
		goleak.IgnoreTopFunction("github.com/redis/go-redis/v9/internal/pool.startGlobalTimeCache.func1"),
	)
}

// store is the interface of both drivers.
type store interface {
	driver.Driver
	driver.Watcher
	driver.Inspector
	driver.Breaker
}

// clients are the two ways to the scripts.
var clients = map[string]func(url string) (store, error){
	"go-redis": func(url string) (store, error) { return redisdriver.Open(patiently(url)) },
	"rueidis":  func(url string) (store, error) { return rueidisdriver.Open(patiently(url)) },
}

// patient is the time limit of a request, unless a test sets another: longer than any pause of
// the machine.
const patient = 20 * time.Second

func patiently(url string) string {
	switch {
	case strings.Contains(url, "timeout="):
		return url
	case strings.Contains(url, "?"):
		return url + "&timeout=" + patient.String()
	default:
		return url + "?timeout=" + patient.String()
	}
}

// eachClient runs a test once over every client library.
func eachClient(t *testing.T, test func(t *testing.T, open func(url string) store)) {
	for name, open := range clients {
		t.Run(name, func(t *testing.T) {
			test(t, func(url string) store {
				t.Helper()
				d, err := open(url)
				if err != nil {
					t.Fatalf("open %s: %v", url, err)
				}
				t.Cleanup(func() { _ = d.Close() })
				return d
			})
		})
	}
}

// number returns a number that a server reports about itself.
func number(t testing.TB, s *redistest.Server, section, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s.Info(t, section)[name], 10, 64)
	noErr(t, err)
	return n
}

// life is the time to live of leases and tickets that must not expire during a test. It is long,
// because the machine may be busy.
const life = time.Minute

func request(key, id string) driver.Request {
	return driver.Request{Key: key, ID: id, Owner: "tester", TTL: life, ConfirmWindow: life / 4, Since: time.Now()}
}

func waiting(key, id, notify string) driver.Request {
	req := request(key, id)
	req.TicketTTL, req.HintAddress = life, notify
	return req
}

func release(t testing.TB, d driver.Driver, key, id string, want driver.State) driver.Reply {
	t.Helper()
	reply, err := d.Release(context.Background(), driver.Ref{Key: key, ID: id})
	if err != nil || reply.State != want {
		t.Fatalf("release %s of %s: %+v, %v; want state %d", key, id, reply, err, want)
	}
	return reply
}

func renew(t testing.TB, d driver.Driver, ref driver.Ref, want driver.State) driver.Reply {
	t.Helper()
	replies, errs := renewAll(d, []driver.Ref{ref})
	if errs[0] != nil || replies[0].State != want {
		t.Fatalf("renew %s of %s: %+v, %v; want state %d", ref.Key, ref.ID, replies[0], errs[0], want)
	}
	return replies[0]
}

func renewAll(d driver.Driver, refs []driver.Ref) ([]driver.Reply, []error) {
	replies, errs := make([]driver.Reply, len(refs)), make([]error, len(refs))
	for i := range errs {
		errs[i] = errors.New("no answer")
	}
	d.Renew(context.Background(), refs, func(i int, r driver.Reply, err error) { replies[i], errs[i] = r, err })
	return replies, errs
}

func lease(key, id string) driver.Ref {
	return driver.Ref{Key: key, ID: id, TTL: life, TicketTTL: life}
}

// listed returns all keys of a listing, sorted.
func listed(t testing.TB, d store, prefix string) (keys []string) {
	t.Helper()
	for cursor, first := "", true; first || cursor != ""; first = false {
		some, next, err := d.List(context.Background(), prefix, cursor)
		noErr(t, err)
		keys, cursor = append(keys, some...), next
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// ears is a subscription and its hints.
type ears struct {
	driver.Subscription
	hints chan driver.Hint
}

// listen subscribes and waits until the subscription is up.
func listen(t testing.TB, d driver.Watcher) *ears {
	t.Helper()
	e := &ears{hints: make(chan driver.Hint, 1000)}
	var err error
	if e.Subscription, err = d.Watch(func(h driver.Hint) { e.hints <- h }); err != nil {
		t.Fatal(err)
	}
	e.hear(t, driver.HintResync, "")
	return e
}

// hear waits for a hint and ignores other hints.
func (e *ears) hear(t testing.TB, kind driver.HintKind, id string) driver.Hint {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case h := <-e.hints:
			if h.Kind == kind && h.ID == id {
				return h
			}
		case <-timeout:
			t.Fatalf("no hint of kind %d for %q", kind, id)
		}
	}
}

// eventually waits until ok returns true, for a minute at most.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	await.Until(t, ok, what)
}

var (
	noErr   = ask.NoError
	acquire = ask.Acquire
)
