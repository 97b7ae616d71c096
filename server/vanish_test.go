package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/server"
)

// window bounds how long a client that vanishes may block other clients, including the delays of
// a busy machine. Without detection it would be a minute, by the TTL and the wait.
const window = time.Second + 14*time.Second

// listen serves a store as the command does, at a socket, and returns the beginning of the URLs.
func listen(t *testing.T, store driver.Driver, opts ...server.Option) string {
	t.Helper()
	l := socket(t)
	listenAt(t, l, store, opts...)
	return "http://" + l.Addr().String()
}

// socket returns a listener at a socket.
func socket(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(t, err)
	return l
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

// connect opens a connection to the service of a URL.
func connect(t testing.TB, base string) net.Conn {
	t.Helper()
	scheme, host, _ := strings.Cut(base, "://")
	dial := new(net.Dialer).DialContext
	if service, ok := network.services.Load(host); ok && scheme == "pipe" {
		dial = service.(*http.Transport).DialContext
	}
	c, err := dial(t.Context(), "tcp", host)
	noErr(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// town is a store with two services on it. Their clients ask for the lock k.
type town struct {
	*testing.T
	store driver.Inspector
	base  [2]string
	gone  chan string // the lease id of each request to the first service whose client had gone, at its end
}

// newTown returns a town with the services of serve. Unless through is nil, the first
// service reaches the store through its result.
func newTown(
	t *testing.T, serve func(*testing.T, driver.Driver, ...server.Option) string,
	through func(driver.Driver) *intercept.Driver, opts ...server.Option,
) *town {
	t.Helper()
	store, gone := memdriver.New(), make(chan string, 64)
	t.Cleanup(func() { store.Close() })
	first := driver.Driver(store.Join())
	if through != nil {
		first = through(first)
	}
	ends := server.WithObserver(func(_ *http.Request, x *server.Exchange) {
		if x.Status == 0 {
			gone <- x.LeaseID
		}
	})
	return &town{t, store, [2]string{serve(t, first, append(opts, ends)...), serve(t, store.Join())}, gone}
}

// towns runs play with two services on a store, in virtual time.
func towns(t *testing.T, play func(t *town)) {
	synctest.Test(t, func(t *testing.T) { play(newTown(t, listenInMemory, nil)) })
}

func (t *town) url(service int, path string) string { return t.base[service] + path }

func (t *town) look() driver.Snapshot {
	t.Helper()
	snap, err := t.store.Inspect(context.Background(), "k")
	noErr(t, err)
	return snap
}

// await waits until ok returns true for the lock, and fails the test after the window.
func (t *town) await(what string, ok func(driver.Snapshot) bool) {
	t.Helper()
	for end := time.Now().Add(window); !ok(t.look()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v: %+v", what, window, t.look())
		}
	}
}

// queued waits until the lock has n waiters.
func (t *town) queued(n int) {
	t.Helper()
	t.await(fmt.Sprint(n, " in the queue"), func(s driver.Snapshot) bool { return len(s.Waiters) == n })
}

// free waits until the lock has no holder.
func (t *town) free() {
	t.Helper()
	t.await("free", func(s driver.Snapshot) bool { return len(s.Holders) == 0 })
}

// keepsPlace waits until the lease w is the only waiter, and has more time than a client that
// still waits.
func (t *town) keepsPlace() {
	t.Helper()
	t.await("kept for ticketMs", func(s driver.Snapshot) bool {
		return len(s.Waiters) == 1 && s.Waiters[0].ID == "w" && s.Waiters[0].Remaining > 16*time.Second
	})
}

// heldBy reports whether the lease holds the lock, and is confirmed.
func heldBy(id string) func(driver.Snapshot) bool {
	return func(s driver.Snapshot) bool {
		return len(s.Holders) == 1 && s.Holders[0].ID == id && s.Holders[0].Confirmed
	}
}

// holds checks that the lease holds the lock, as its client has read.
func (t *town) holds(id string) {
	t.Helper()
	if snap := t.look(); !heldBy(id)(snap) {
		t.Errorf("the reported lease %s is gone: %+v", id, snap)
	}
}

// take takes the lock for a client of the second service that does not vanish.
func (t *town) take(id string) {
	t.Helper()
	must(t, 201, "POST", t.url(1, "/v1/locks/k"), fmt.Sprintf(`{"leaseId":%q,"ttlMs":60000}`, id))
}

func (t *town) release(id string) {
	t.Helper()
	must(t, 204, "DELETE", t.url(1, "/v1/locks/k/leases/"+id), "")
}

// phone is a client that waits on a connection of its own.
type phone struct {
	net.Conn
	t *town
}

// call sends a request that waits for a minute.
func (t *town) call(service int, id string) *phone {
	t.Helper()
	return t.send(service, "POST", "/v1/locks/k", fmt.Sprintf(`{"leaseId":%q,"ttlMs":60000,"waitMs":60000}`, id))
}

// callFor sends a request of the lease w. Its place may outlast its connection.
func (t *town) callFor(service int, wait, ticket time.Duration) *phone {
	t.Helper()
	return t.send(service, "POST", "/v1/locks/k", fmt.Sprintf(`{"leaseId":"w","ttlMs":60000,"waitMs":%d,"ticketMs":%d}`, wait.Milliseconds(), ticket.Milliseconds()))
}

// send sends a request on a connection of its own.
func (t *town) send(service int, method, path, body string) *phone {
	t.Helper()
	c := connect(t, t.base[service])
	_, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s",
		method, path, len(body), body)
	noErr(t, err)
	return &phone{c, t}
}

// die closes the connection as the kernel does for a process that was killed.
func (p *phone) die() { p.Close() }

// leave closes the connection while the request of the store waits at stop, and returns when the request
// has ended.
func (p *phone) leave(stop *halt) {
	p.t.Helper()
	soon(p.t, "the store is asked", stop.reached)
	p.die()
	stop.open()
	soon(p.t, "the request has ended", p.t.gone)
}

// answer reads the answer. Its status is 0 if the service closes the connection instead.
func (p *phone) answer() exchange {
	p.t.Helper()
	_ = p.SetReadDeadline(time.Now().Add(20 * time.Second))
	res, err := http.ReadResponse(bufio.NewReader(p), nil)
	if err != nil {
		return exchange{who: "a phone", body: err.Error()}
	}
	return exchange{who: "a phone", status: res.StatusCode, body: read(p.t, res)}
}

// granted checks that the call is answered with a lease, perhaps a second time.
func (p *phone) granted() {
	p.t.Helper()
	if got := p.answer(); got.status != 201 && got.status != 200 {
		p.t.Fatal(got.status, got.body)
	}
}

func TestVanish_H1_WhoeverGoesWhileItWaitsLeavesTheQueueAtOnce(t *testing.T) {
	towns(t, func(t *town) {
		t.take("holder")
		var all []*phone
		for i := range 5 {
			all = append(all, t.call(i%2, fmt.Sprint("w", i)))
			t.queued(i + 1)
		}
		all[0].die() // the head, one in the middle, and the last
		all[2].die()
		all[4].die()
		t.queued(2)
		t.release("holder")
		for _, i := range []int{1, 3} {
			answered(t, 201, all[i].answer())
			t.release(fmt.Sprint("w", i))
		}
	})
}

// Two requests for one lease are one visit to the store: the end of one keeps the place of the other,
// and the end of both leaves the queue.
func TestVanish_H1_APlaceStaysForTheOtherRequestOfItsLease(t *testing.T) {
	towns(t, func(t *town) {
		t.take("holder")
		first := t.call(0, "w")
		t.queued(1)
		t.call(1, "next")
		t.queued(2)
		t.call(0, "w").die()
		second := t.call(0, "w")
		synctest.Wait()
		second.die()
		time.Sleep(10 * time.Second) // several renewals of the places
		if w := t.look().Waiters; len(w) != 2 || w[0].ID != "w" {
			t.Errorf("the queue is %+v", w)
		}
		first.die()
		t.queued(1)
	})
}

// The store grants the lock and answers too late, so the outcome is unknown when the client is gone.
func TestVanish_H1_AnUnknownGrantIsGivenBackIfTheClientHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		town := newTown(t, listenInMemory, func(store driver.Driver) *intercept.Driver {
			return after(store, func(m *message) error {
				if m.Verb != intercept.Acquire {
					return nil
				}
				time.Sleep(time.Second)
				return context.DeadlineExceeded
			})
		})
		p := town.send(0, "POST", "/v1/locks/k", `{"leaseId":"w","ttlMs":60000}`)
		time.Sleep(500 * time.Millisecond)
		town.holds("w")
		p.die()
		town.free()
	})
}

// An answer is a grant if its client has read it, and closes its connection then, as curl does. The
// answer may also have reached the machine of a client that dies before it reads it.
func TestVanish_H1_AnAnswerIsAGrantIfItWasRead(t *testing.T) {
	for name, reads := range map[string]bool{"read": true, "not read": false} {
		t.Run(name, func(test *testing.T) {
			// The window is for clients that die late because the machine is busy.
			t := newTown(test, listen, nil, server.WithConfirmWithin(window))
			t.take("holder")
			p := t.call(0, "w")
			t.queued(1)
			t.release("holder")
			if reads {
				p.granted()
				p.die()
				time.Sleep(100 * time.Millisecond) // a wrong undo would have come by then
				t.holds("w")
				return
			}
			t.await("granted", heldBy("w"))
			time.Sleep(20 * time.Millisecond) // the answer is on its way
			p.die()
			t.free()
		})
	}
}

// TestLook_OfAClientThatHasGoneIsNotAnswered: the state of the store is unknown then, and a proxy
// or a log would record an answer that is not documented.
func TestLook_OfAClientThatHasGoneIsNotAnswered(t *testing.T) {
	s := open(t, mute(intercept.Inspect, intercept.List))
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
