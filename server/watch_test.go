package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server"
)

// watcher requests the state of a lock after its next change.
func watcher(t testing.TB, url, etag, wait string) (status int, state wire.Lock, tag string) {
	t.Helper()
	var header []string
	if etag != "" {
		header = append(header, "If-None-Match", etag)
	}
	if wait != "" {
		header = append(header, "Prefer", "respond-async, wait="+wait)
	}
	got := ask(t, "GET", url, "", header...)
	if got.status == http.StatusOK {
		if err := json.Unmarshal([]byte(got.body), &state); err != nil {
			t.Errorf("%q: %v", got.body, err)
		}
	}
	return got.status, state, got.header.Get("ETag")
}

func TestWatch_ReturnsWhenSomethingChanges(t *testing.T) {
	towns(t, func(t *town) {
		url := t.url(0, "/v1/locks/k")
		status, state, tag := watcher(t, url, "", "")
		if status != 200 || state.State != "free" || tag == "" {
			t.Fatalf("%d %+v %q", status, state, tag)
		}
		changes := make(chan wire.Lock, 1)
		watch := func() {
			go func(since string) {
				status, state, now := watcher(t, url, since, "30")
				if status != 200 || now == since {
					t.Errorf("%d, and the tag %q after %q", status, now, since)
				}
				tag = now
				changes <- state
			}(tag)
		}
		watch()
		must(t, 201, "POST", url, `{"leaseId":"a","ttlMs":60000}`) // by this service
		if s := soon(t, "taken", changes); s.State != "held" || s.Holders[0].LeaseID != "a" {
			t.Errorf("%+v", s)
		}
		watch()
		waiting := t.call(1, "b") // by another
		if s := soon(t, "queued", changes); len(s.Waiters) != 1 || s.Waiters[0].LeaseID != "b" {
			t.Errorf("%+v", s)
		}
		watch()
		waiting.die()
		if s := soon(t, "left", changes); len(s.Waiters) != 0 {
			t.Errorf("%+v", s)
		}
		watch()
		t.release("a")
		if s := soon(t, "free", changes); s.State != "free" || len(s.Holders) != 0 {
			t.Errorf("%+v", s)
		}
		// The passage of time is no change.
		start := time.Now()
		if status, _, _ := watcher(t, url, tag, "1"); status != 304 || time.Since(start) < time.Second {
			t.Errorf("%d after %v", status, time.Since(start))
		}
		if status, _, _ := watcher(t, url, `W/"other", `+tag, ""); status != 304 {
			t.Errorf("one of several tags: %d", status)
		}
		if status, _, _ := watcher(t, url, `W/"other"`, "30"); status != 200 {
			t.Errorf("another tag: %d", status)
		}
	})
}

// radio is a stream of events.
type radio struct {
	t      testing.TB
	body   io.Reader
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

func tune(t testing.TB, url string, header ...string) *radio {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	noErr(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	noErr(t, err)
	t.Cleanup(func() { cancel(); res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", res.StatusCode, read(t, res))
	}
	(&exchange{method: http.MethodGet, url: url, status: res.StatusCode, header: res.Header}).judge()
	return &radio{t, res.Body, bufio.NewScanner(res.Body), cancel}
}

// next returns the next event.
func (r *radio) next() (id, name, data string) {
	r.t.Helper()
	timeout := time.AfterFunc(time.Minute, r.cancel)
	defer timeout.Stop()
	for r.lines.Scan() {
		field, value, _ := strings.Cut(r.lines.Text(), ": ")
		switch {
		case field == "id":
			id = value
		case field == "event":
			name = value
		case field == "data":
			data = value
		case field == "" && data != "":
			return id, name, data
		}
	}
	r.t.Fatalf("no event: %v", r.lines.Err())
	return "", "", ""
}

// hear decodes the data of the next event of a name into the value.
func (r *radio) hear(name string, into any) {
	r.t.Helper()
	for {
		if _, got, data := r.next(); got == name {
			if err := json.Unmarshal([]byte(data), into); err != nil {
				r.t.Fatalf("%s: %v", data, err)
			}
			return
		}
	}
}

// dim is a store that answers only the first look at each lock.
type dim struct {
	*memdriver.Driver
	mu    sync.Mutex
	looks map[string]int // by lock
}

func (d *dim) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	d.mu.Lock()
	d.looks[key]++
	first := d.looks[key] == 1
	d.mu.Unlock()
	if first {
		return d.Driver.Inspect(ctx, key)
	}
	<-ctx.Done()
	return driver.Snapshot{}, context.Cause(ctx)
}

// left returns a service with watchers of locks whose clients have gone while the store did not
// answer.
func left(t *testing.T, store driver.Driver, keys string) *server.Server {
	t.Helper()
	s := open(t, store, server.WithStoreTimeout(time.Minute))
	ctx, leave := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for _, key := range keys {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/locks/"+string(key), nil)
		r.Header.Set("If-None-Match", "*")
		r.Header.Set("Prefer", "wait=30")
		clients.Go(func() {
			defer func() { _ = recover() }() // the handler panics if its client has gone
			s.ServeHTTP(httptest.NewRecorder(), r)
		})
	}
	synctest.Wait()
	leave()
	clients.Wait()
	return s
}

// A look that is under way when its client goes is not cancelled, since other requests may share
// its connection. It is the last look.
func TestWatch_LooksNoMoreWhenEverybodyHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &dim{Driver: memdriver.New(), looks: make(map[string]int)}
		s := left(t, store, "abcdefgh")
		defer s.Close()
		time.Sleep(10 * time.Minute)
		for key, n := range store.looks {
			if n != 2 {
				t.Errorf("lock %s was looked at %d times, want 2", key, n)
			}
		}
	})
}

func TestClose_DoesNotWaitForALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := left(t, &dim{Driver: memdriver.New(), looks: make(map[string]int)}, "k")
		began := time.Now()
		noErr(t, s.Close())
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v to close a service of a store that does not answer", took)
		}
	})
}

// staged is a store whose state the test sets. The test may delay the looks of watchers: they
// read at once, and return when the test allows it.
type staged struct {
	*memdriver.Driver
	requests chan struct{} // receives a value when a request has looked

	mu   sync.Mutex
	snap driver.Snapshot
	hold chan struct{} // closed when the looks of watchers may return; nil without a delay
	held chan struct{} // receives a value when a look has read, and waits
}

func (s *staged) show(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap = driver.Snapshot{Holders: []driver.Holder{{ID: id, Token: 1}}}
}

// slow delays the looks of watchers, and waits until one has read.
func (s *staged) slow(t *testing.T) (letGo func()) {
	t.Helper()
	hold := make(chan struct{})
	s.mu.Lock()
	s.hold = hold
	s.mu.Unlock()
	soon(t, "a watcher looks", s.held)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.hold = nil
		s.mu.Unlock()
		close(hold)
	})
}

func (s *staged) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	s.mu.Lock()
	snap, hold := s.snap, s.hold
	s.mu.Unlock()
	snap.Key = key
	if ctx.Value(http.ServerContextKey) != nil { // not of a watcher
		select {
		case s.requests <- struct{}{}:
		default:
		}
		return snap, nil
	}
	if hold != nil {
		select {
		case s.held <- struct{}{}:
		default:
		}
		select {
		case <-hold:
		case <-ctx.Done():
			return driver.Snapshot{}, ctx.Err()
		}
	}
	return snap, nil
}

func holderOf(l wire.Lock) string {
	if len(l.Holders) != 1 {
		return ""
	}
	return l.Holders[0].LeaseID
}

// The last look of a watcher may be older than the state that a client has seen.
func TestWatch_NeverGoesBackBehindWhatTheClientHasSeen(t *testing.T) {
	for _, next := range []string{"c", "a"} { // the second is the state of the watcher's first look
		bubble(t, next, func(t *testing.T) {
			store := &staged{Driver: memdriver.New(), requests: make(chan struct{}, 1), held: make(chan struct{}, 1)}
			base := listenInMemory(t, store)
			store.show("a")
			others := tune(t, base+"/v1/events?name=k")
			var lock wire.Lock
			if others.hear("lock", &lock); holderOf(lock) != "a" {
				t.Fatalf("%+v", lock)
			}
			letGo := store.slow(t)
			defer letGo()

			store.show("b")
			_, lock, tag := watcher(t, base+"/v1/locks/k", "", "")
			if holderOf(lock) != "b" {
				t.Fatalf("%+v", lock)
			}
			<-store.requests
			later := tune(t, base+"/v1/events?name=k")
			told := make(chan wire.Lock, 1)
			go func() {
				_, state, _ := watcher(t, base+"/v1/locks/k", tag, "30")
				told <- state
			}()
			<-store.requests // the lock has the state that the client has seen
			store.show(next)
			letGo()
			if lock = soon(t, "a change is reported", told); holderOf(lock) != next {
				t.Errorf("a wait for a change shows %q after b, not %q", holderOf(lock), next)
			}
			if next == "a" {
				return
			}
			if later.hear("lock", &lock); holderOf(lock) == "a" {
				t.Error("a stream begins with a state that is older than the stream")
			}
		})
	}
}
