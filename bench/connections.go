package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/httpdriver"
	"github.com/leasehold-go/leasehold/rueidisdriver"
)

// connected is how many goroutines, or connections, ask at a time.
const connected = 64

// connections measures the service by clients that do nothing but HTTP, beside
// the library on the store that the service stands on: how many locks they take,
// and how soon one of two waiters has what the other gives back. A handler of
// net/http that calls the driver, and does nothing else, shows what HTTP costs by
// itself.
func connections(ctx context.Context, b *bench) (*table, error) {
	addr, stop, err := startService(b.srv.addr)
	if err != nil {
		return nil, err
	}
	defer stop()
	url := "http://" + addr
	floor, stopFloor, err := startFloor(b.srv.addr)
	if err != nil {
		return nil, err
	}
	defer stopFloor()
	all := b.pick([]contender{
		leaseholdRueidis(), leaseholdGoRedis(),
		{name: "bare net/http handler on the driver", kind: peer, client: rueidisClient, open: overHTTP(floor)},
		{name: "Leasehold's service, bare HTTP client", kind: ours, client: rueidisClient, open: overHTTP(url)},
		leaseholdOn("Leasehold over HTTP", rueidisClient, func(string) (driver.Driver, error) { return httpdriver.New(url) }),
	})
	rate, gap, late := grid(all), grid(all), grid(all)
	procs, err := b.openAll(all, settings{ttl: outlast})
	if err != nil {
		return nil, err
	}
	defer closeAll(procs)
	for round := range b.rounds + 1 { // the first one warms up
		for i, c := range all {
			key := fmt.Sprintf("connections:%d:%d", i, round)
			w, err := b.crowdOfPairs(ctx, procs[i], connected, key)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			gaps, err := pingPong(ctx, procs[i], key+":two")
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			if round > 0 {
				rate[i] = append(rate[i], w.rate())
				gap[i], late[i] = append(gap[i], median(gaps)), append(late[i], quantile(gaps, 0.9))
			}
		}
	}
	t := newTable(fmt.Sprintf("HTTP service: %d connections or goroutines, each its own lock; a hand-over between two waiters", connected),
		column{Name: "pairs/s", Digits: 0}, column{Name: "% of the library", Digits: 0, AtLeast: 50},
		column{Name: "hand-over: p50 ms", Digits: 2, AtMost: 2}, column{Name: "p90 ms", Digits: 2})
	for i, c := range all {
		if strings.HasPrefix(c.name, "bare") {
			gap[i], late[i] = nil, nil // it cannot wait
		}
		t.add(c, rate[i], percent(ratios(rate[i], rate[0])), gap[i], late[i])
	}
	return t, nil
}

// passes is how often a lock goes from one to the other and back in one round.
const passes = 10

// pingPong returns how many ms it takes from the call that gives a lock back to
// the return of the call that waited for it.
func pingPong(ctx context.Context, p process, key string) (gaps []float64, err error) {
	type turn struct {
		lock held
		at   time.Time
		err  error
	}
	h, err := p.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	for range passes {
		next := make(chan turn, 1)
		go func() {
			lock, err := p.Lock(ctx, key)
			next <- turn{lock, time.Now(), err}
		}()
		time.Sleep(3 * time.Millisecond) // until it waits
		start := time.Now()
		if err := h.Release(); err != nil {
			return nil, err
		}
		t := <-next
		if t.err != nil {
			return nil, t.err
		}
		gaps = append(gaps, millis(t.at.Sub(start)))
		h = t.lock
	}
	return gaps, h.Release()
}

// startFloor serves a lock by the least that can be done with net/http.
func startFloor(addr string) (url string, stop func(), err error) {
	store, err := rueidisdriver.New(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, errors.Join(err, store.Close())
	}
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(r.URL.Path, "/")
		var err error
		if r.Method == http.MethodDelete {
			_, err = store.Release(r.Context(), driver.Ref{Key: parts[3], ID: parts[5]})
		} else {
			body, _ := io.ReadAll(r.Body)
			id := strings.Split(string(body), `"`)[3]
			_, err = store.Acquire(r.Context(), driver.Request{Key: parts[3], ID: id, Since: time.Now(), TTL: outlast})
		}
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // it says that the server was closed
	}()
	return "http://" + l.Addr().String(), func() {
		_ = srv.Close()
		<-done
		_ = store.Close()
	}, nil
}

// overHTTP opens a client that speaks HTTP and nothing else: it writes a request
// and reads the answer, on connections that it keeps.
func overHTTP(url string) func(string, settings) (process, error) {
	return func(_ string, s settings) (process, error) {
		return &httpClient{addr: strings.TrimPrefix(url, "http://"), ttl: s.ttl, idle: make(chan *httpConn, 4*connected)}, nil
	}
}

type httpClient struct {
	addr string
	ttl  time.Duration
	idle chan *httpConn
}

type httpConn struct {
	net.Conn
	r *bufio.Reader
}

// ask sends a request and returns the status.
func (c *httpClient) ask(request string) (int, error) {
	var conn *httpConn
	select {
	case conn = <-c.idle:
	default:
		nc, err := net.Dial("tcp", c.addr)
		if err != nil {
			return 0, err
		}
		conn = &httpConn{nc, bufio.NewReader(nc)}
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return 0, errors.Join(err, conn.Close())
	}
	status, err := conn.answer()
	if err != nil {
		return 0, errors.Join(err, conn.Close())
	}
	c.idle <- conn
	return status, nil
}

// answer reads one whose body has a length.
func (c *httpConn) answer() (status int, err error) {
	length := 0
	for first := true; ; first = false {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		switch {
		case first:
			_, err = fmt.Sscanf(line, "HTTP/1.1 %d", &status)
		case line == "\r\n":
			_, err = c.r.Discard(length)
			return status, err
		case strings.HasPrefix(line, "Content-Length: "):
			_, err = fmt.Sscanf(line, "Content-Length: %d", &length)
		}
		if err != nil {
			return 0, err
		}
	}
}

// Lock implements [process].
func (c *httpClient) Lock(_ context.Context, key string) (held, error) {
	id := rand.Text()
	body := fmt.Sprintf(`{"leaseId":"%s","ttlMs":%d,"waitMs":20000}`, id, c.ttl.Milliseconds())
	status, err := c.ask(fmt.Sprintf("POST /v1/locks/%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", key, len(body), body))
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("acquire: %d", status)
	}
	return releaser(func() error {
		status, err := c.ask(fmt.Sprintf("DELETE /v1/locks/%s/leases/%s HTTP/1.1\r\nHost: x\r\n\r\n", key, id))
		if err == nil && status >= http.StatusBadRequest {
			err = fmt.Errorf("release: %d", status)
		}
		return err
	}), err
}

// Crash implements [process].
func (c *httpClient) Crash(context.Context, string, time.Duration) error {
	return errors.ErrUnsupported
}

// Close implements [process].
func (c *httpClient) Close() error {
	for {
		select {
		case conn := <-c.idle:
			_ = conn.Close()
		default:
			return nil
		}
	}
}
