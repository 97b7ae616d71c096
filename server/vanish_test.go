package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// window bounds how long a client that vanishes may block other clients, including the delays of
// a busy machine. Without detection it would be a minute, by the TTL and the wait.
const window = time.Second + 14*time.Second

// listen serves a store as the command does, at a socket, and returns the beginning of the URLs.
func listen(t *testing.T, store driver.Driver, opts ...server.Option) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listenAt(t, l, store, opts...)
	return "http://" + l.Addr().String()
}

// listenInMemory does the same without a socket.
func listenInMemory(t *testing.T, store driver.Driver, opts ...server.Option) string {
	t.Helper()
	l, base := network.listen()
	listenAt(t, l, store, opts...)
	return base
}

func listenAt(t *testing.T, l net.Listener, store driver.Driver, opts ...server.Option) {
	t.Helper()
	s := open(t, store, opts...)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l, nil) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// connect opens a connection to a service.
func connect(t *testing.T, base string) net.Conn {
	t.Helper()
	c, err := network.dial(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// town is a store with two services on it.
type town struct {
	*testing.T
	store driver.Inspector
	base  [2]string
}

// patient is for clients that die late after their answer because the machine is busy.
var patient = server.WithConfirmWithin(window)

// towns runs play with two services on a store, in virtual time.
func towns(t *testing.T, play func(t *town)) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		t.Cleanup(func() { store.Close() })
		play(&town{t, store, [2]string{listenInMemory(t, store.Join()), listenInMemory(t, store.Join())}})
	})
}

// townOfSockets returns two services on a store, with sockets that can be reset.
func townOfSockets(t *testing.T) *town {
	store := memdriver.New()
	t.Cleanup(func() { store.Close() })
	return &town{t, store, [2]string{listen(t, store.Join(), patient), listen(t, store.Join(), patient)}}
}

func (t *town) url(service int, path string) string { return t.base[service] + path }

func (t *town) look(key string) driver.Snapshot {
	t.Helper()
	snap, err := t.store.Inspect(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// await waits until ok returns true for the lock, and fails the test after the time within.
func (t *town) await(key string, within time.Duration, what string, ok func(driver.Snapshot) bool) {
	t.Helper()
	end := time.Now().Add(within)
	for {
		snap := t.look(key)
		if ok(snap) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v: %+v", what, within, snap)
		}
		time.Sleep(time.Millisecond)
	}
}

func queueOf(n int) func(driver.Snapshot) bool {
	return func(s driver.Snapshot) bool { return len(s.Waiters) == n }
}

// heldBy reports whether the lease holds the lock, and is confirmed.
func heldBy(id string) func(driver.Snapshot) bool {
	return func(s driver.Snapshot) bool {
		return len(s.Holders) == 1 && s.Holders[0].ID == id && s.Holders[0].Confirmed
	}
}

// take takes a lock for a client that does not vanish.
func (t *town) take(key, id string) {
	t.Helper()
	must(t.T, 201, "POST", t.url(0, "/v1/locks/"+key), fmt.Sprintf(`{"leaseId":%q,"ttlMs":60000}`, id))
}

func (t *town) release(key, id string) {
	t.Helper()
	must(t.T, 204, "DELETE", t.url(0, "/v1/locks/"+key+"/leases/"+id), "")
}

// phone is a client that waits on a connection of its own.
type phone struct {
	net.Conn
	t *town
}

// call sends a request that waits for a minute.
func (t *town) call(service int, key, id string) *phone {
	t.Helper()
	return t.post(service, key, fmt.Sprintf(`{"leaseId":%q,"ttlMs":60000,"waitMs":60000}`, id))
}

// post sends a request for a lock.
func (t *town) post(service int, key, body string) *phone {
	t.Helper()
	c := connect(t.T, t.base[service])
	if _, err := fmt.Fprintf(c, "POST /v1/locks/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", key, len(body), body); err != nil {
		t.Fatal(err)
	}
	return &phone{c, t}
}

// die closes the connection as the kernel does for a process that was killed.
func (p *phone) die() { p.Close() }

// answer reads the answer.
func (p *phone) answer() (int, string) {
	p.t.Helper()
	_ = p.SetReadDeadline(time.Now().Add(20 * time.Second))
	res, err := http.ReadResponse(bufio.NewReader(p), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func TestVanish_H1_WhoeverGoesWhileItWaitsLeavesTheQueueAtOnce(t *testing.T) {
	towns(t, func(t *town) {
		t.take("k", "holder")
		var all []*phone
		for i := range 5 {
			all = append(all, t.call(i%2, "k", fmt.Sprint("w", i)))
			t.await("k", window, "queued", queueOf(i+1))
		}
		all[0].die() // the head, one in the middle, and the last
		all[2].die()
		all[4].die()
		t.await("k", window, "gone", queueOf(2))
		t.release("k", "holder")
		for _, i := range []int{1, 3} {
			if status, text := all[i].answer(); status != 201 {
				t.Errorf("w%d: %d %s", i, status, text)
			}
			t.release("k", fmt.Sprint("w", i))
		}
	})
}

// The answer has reached the machine of a client that dies before it reads it.
func TestVanish_H1_AnAnswerThatIsNotReadIsNoGrant(test *testing.T) {
	t := townOfSockets(test)
	t.take("k", "holder")
	p := t.call(1, "k", "gone")
	t.await("k", window, "queued", queueOf(1))
	t.release("k", "holder")
	t.await("k", window, "granted", heldBy("gone"))
	time.Sleep(20 * time.Millisecond) // the answer is on its way
	p.die()
	t.await("k", window, "given back", func(s driver.Snapshot) bool { return len(s.Holders) == 0 })
}

func TestVanish_H1_AnAnswerThatWasReadIsAGrant(test *testing.T) {
	t := townOfSockets(test)
	t.take("k", "holder")
	p := t.call(1, "k", "stays")
	t.await("k", window, "queued", queueOf(1))
	t.release("k", "holder")
	if status, text := p.answer(); status != 201 {
		t.Fatalf("%d %s", status, text)
	}
	p.Close() // as curl does
	time.Sleep(100 * time.Millisecond)
	if snap := t.look("k"); !heldBy("stays")(snap) {
		t.Fatalf("%+v", snap)
	}
}

// A client whose connection broke asks again by another connection, perhaps at another service.
// The first request must not give back a lease that the second has reported to the client.
func TestVanish_H1_WhoComesBackKeepsWhatItWasTold(test *testing.T) {
	t := townOfSockets(test)
	for i := range 24 {
		key := fmt.Sprint("k", i)
		t.take(key, "holder")
		first := t.call(0, key, "w")
		t.await(key, window, "queued", queueOf(1))
		second := t.call(i%2, key, "w")
		died := make(chan struct{})
		go func() {
			defer close(died)
			time.Sleep(time.Duration(i%8) * 300 * time.Microsecond)
			first.die()
		}()
		if i%4 < 2 {
			<-died
		}
		t.release(key, "holder")
		if status, text := second.answer(); status != 201 && status != 200 {
			t.Fatalf("round %d: %d %s", i, status, text)
		}
		<-died
		time.Sleep(5 * time.Millisecond)
		if snap := t.look(key); !heldBy("w")(snap) {
			t.Fatalf("round %d: the reported lease is gone: %+v", i, snap)
		}
		t.release(key, "w")
	}
}

// TestLook_OfAClientThatHasGoneIsNotAnswered: the state of the store is unknown then, and a proxy
// or a log would record an answer that is not documented.
func TestLook_OfAClientThatHasGoneIsNotAnswered(t *testing.T) {
	s := open(t, &hooked{memdriver.New(), mute("inspect", "glance", "list")})
	for _, path := range []string{"/v1/locks/k", "/v1/locks/k?waiters=false", "/v1/locks"} {
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, leave)
		w := httptest.NewRecorder()
		func() {
			defer leave()
			defer func() {
				if got := recover(); got != http.ErrAbortHandler { //nolint:errorlint // net/http compares it in the same way
					t.Errorf("%s: %v, answered %d %s", path, got, w.Code, w.Body)
				}
			}()
			s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody))
		}()
	}
}
