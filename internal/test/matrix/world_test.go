package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/internal/test/pipenet"
	"github.com/leasehold-go/leasehold/internal/test/teststore"
	"github.com/leasehold-go/leasehold/server"
)

const (
	ttl      = 3 * time.Second
	lateness = 4 * time.Second // longer than a lease
	slowness = 1200 * time.Millisecond
	drift    = 0.01
)

var errNoAnswer = errors.New("no answer")

// fate is the effect of the weather on one message.
type fate uint8

const (
	arrives      fate = iota
	lost              // it does not arrive, and the sender does not notice
	unanswered        // it arrives, and the answer is lost
	slow              // the answer takes its time
	stuck             // it takes its time to arrive
	late              // it is given up, and arrives much later
	doubled           // it arrives, and again later
	onEdge            // it is answered when the lease ends
	beforeEdge        // it is answered a microsecond before
	frozen            // the server stops, and later handles the messages that it was sent
	refused           // the server answers that it does not do it
	noDial            // there is no connection, and no file descriptor for one
	gateway           // a gateway answers, and it does not arrive
	gatewayAfter      // a gateway answers, and it arrived
	starved           // requests and answers are slow
	forgets           // it is answered, and then the store forgets everything
	goesBack          // it is answered, and then the store is as it was when the fault began
	failsOver         // it arrives, the answer is lost, and the store is as it was
	only503           // it arrives, and a gateway answers that the service is unavailable
	wentBack          // before it arrives the store is as it was when the fault began
)

// weather applies faults to the messages of one client: to one message, or to all messages from
// it on for a while.
type weather struct {
	mu    sync.Mutex
	fate  fate
	at    int           // which message, counted from when it was armed; -1 for no message
	for_  time.Duration // and how long all after it do too
	until time.Time
	then  fate // the fate after that, for a while
	long  time.Duration
	met   int // how many messages have
	seen  int
	fixed bool   // messages no longer meet the fault
	meets func() // is called when a message has met the fault

	strays sync.WaitGroup
	turn   int
}

func (w *weather) arm(f fate, at int, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fate, w.at, w.for_, w.seen, w.met = f, at, d, 0, 0
}

// next returns the fate of a message.
func (w *weather) next() fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.seen
	w.seen++
	now := time.Now()
	switch {
	case w.fate == arrives || n < w.at || w.fixed:
		return arrives
	case n == w.at:
		w.until = now.Add(w.for_)
	case !now.Before(w.until) && w.then != arrives:
		w.fate, w.then = w.then, arrives
		w.until = now.Add(w.long)
	case !now.Before(w.until):
		return arrives
	}
	if w.met++; w.met == 1 && w.meets != nil {
		w.meets()
	}
	return w.fate
}

func (w *weather) thaw() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(w.until)
}

// cannotDial reports whether there is no connection now.
func (w *weather) cannotDial() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fate == noDial && !w.fixed && time.Now().Before(w.until)
}

// jitter returns varying delays that are the same in every run.
func (w *weather) jitter() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn++
	return time.Duration(w.turn*317%900) * time.Millisecond
}

func (w *weather) after(d time.Duration, f func()) {
	w.strays.Go(func() {
		time.Sleep(d)
		f()
	})
}

// store is the set of interfaces of all stores here.
type store interface {
	driver.Driver
	driver.Watcher
	driver.Inspector
	driver.Breaker
	driver.Marker
}

// shelf is the data of a store. It can forget.
type shelf interface {
	join() store // another client, without faults
	Keep()       // saves the present data
	GoBack()     // restores the saved data
	Forget()
}

// table is a shelf of rows, like a PostgreSQL table: it uses the rule of internal/room.
type table struct{ *teststore.Table }

func newTable() *table { return &table{teststore.NewTable(time.Now)} }

func (t *table) join() store { return t.Join() }

// meet runs do under a fate.
func meet(ctx context.Context, f fate, w *weather, t shelf, do func(context.Context) error) error {
	switch f {
	case lost:
		return errNoAnswer
	case unanswered, only503:
		_ = do(context.Background())
		return errNoAnswer
	case slow, onEdge, beforeEdge:
		d := map[fate]time.Duration{slow: slowness, onEdge: life, beforeEdge: life - time.Microsecond}[f]
		return answered(ctx, w, do, 0, d)
	case stuck:
		return answered(ctx, w, do, slowness, 0)
	case starved:
		return answered(ctx, w, do, w.jitter(), w.jitter())
	case frozen:
		return answered(ctx, w, do, w.thaw(), 0)
	case late:
		w.after(lateness, func() { _ = do(context.Background()) })
		return errNoAnswer
	case doubled:
		w.after(slowness, func() { _ = do(context.Background()) })
		return do(ctx)
	case refused, noDial:
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, syscall.EMFILE)
	case forgets:
		err := do(ctx)
		t.Forget()
		time.Sleep(time.Millisecond) // no answer arrives within a microsecond
		return err
	case goesBack:
		err := do(ctx)
		t.GoBack()
		time.Sleep(time.Millisecond) // no answer arrives within a microsecond
		return err
	case wentBack:
		t.GoBack()
		time.Sleep(time.Millisecond)
		return do(ctx)
	case failsOver:
		_ = do(ctx)
		t.GoBack()
		time.Sleep(time.Millisecond)
		return errNoAnswer
	}
	return do(ctx)
}

// answered runs do after the time there, also if the caller no longer waits, and returns its
// error after the time back.
func answered(ctx context.Context, w *weather, do func(context.Context) error, there, back time.Duration) error {
	done := make(chan error, 1)
	w.strays.Go(func() {
		time.Sleep(there)
		err := do(context.WithoutCancel(ctx))
		time.Sleep(back)
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reach returns a store as a client reaches it. The weather applies to its messages, except to those about
// the mark. The store stays open for messages that are late.
func (w *weather) reach(t shelf, store store) driver.Driver {
	d := intercept.New(store, func(ctx context.Context, m *intercept.Message, send func(context.Context) error) error {
		switch {
		case m.Verb == intercept.Close:
			return nil
		case m.Verb.OfMark():
			return send(ctx)
		}
		return meet(ctx, w.next(), w, t, send)
	})
	d.Split = true
	return d
}

// world is the environment of two clients: the messages of the first meet faults, and the
// messages of the second do not.
type world struct {
	*weather
	other   *weather // of the way to another node of a quorum; nil without one
	tables  []shelf
	drivers [2]driver.Driver
	urls    [2]http.RoundTripper // of the replicas of a service
	raw     http.RoundTripper    // to both, under the weather
	skies   []*sky               // of the clients of the library
	aim     func()               // sends the next request to the replica with faults; nil if both have them
	shut    func()               // shuts the first replica down; nil if the client is closed instead
	stop    func()
	dials   bool // connections last, and only new connections need descriptors
	behind  bool // faults are on the way from a service to its store
}

// look returns the state of a lock in the store, or in a majority of the nodes of a quorum.
func (w *world) look(key string) driver.Snapshot {
	var best driver.Snapshot
	var holders []driver.Holder // that a majority has
	held := make(map[string]int)
	for _, t := range w.tables {
		d := t.join()
		snap, err := d.Inspect(context.Background(), key)
		if err != nil {
			panic(err)
		}
		for _, h := range snap.Holders {
			if held[h.ID]++; held[h.ID] == len(w.tables)/2+1 {
				holders = append(holders, h)
			}
		}
		if len(snap.Holders) >= len(best.Holders) {
			best = snap
		}
		_ = d.Close()
	}
	best.Holders = holders
	return best
}

// onStore is two clients of one store.
func onStore(*testing.T) *world {
	w := &world{weather: new(weather), tables: []shelf{newTable()}}
	t := w.tables[0]
	a, b := t.join(), t.join()
	w.drivers = [2]driver.Driver{w.reach(t, a), b}
	w.stop = func() { _, _ = a.Close(), b.Close() }
	return w
}

// onQuorum is two clients of three stores. Messages to one store meet faults.
func onQuorum(t *testing.T) *world {
	return quorum(t, func() shelf { return newTable() }, func(w *weather, s shelf) (client, inner driver.Driver) {
		d := s.join()
		return w.reach(s, d), d
	})
}

// quorum is two clients of three nodes. join returns a client of a node, and the driver to close at the end.
func quorum(t *testing.T, node func() shelf, join func(*weather, shelf) (client, inner driver.Driver)) *world {
	w := &world{weather: new(weather), other: new(weather)}
	var all []driver.Driver
	for range 3 {
		w.tables = append(w.tables, node())
	}
	for i := range w.drivers {
		var nodes []driver.Driver
		for n, tab := range w.tables {
			weather := new(weather)
			switch {
			case i == 0 && n == 0:
				weather = w.weather
			case i == 0 && n == 1:
				weather = w.other
			}
			d, inner := join(weather, tab)
			nodes, all = append(nodes, d), append(all, inner)
		}
		q, err := quorumdriver.New(nodes, quorumdriver.WithTimeout(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		w.drivers[i] = q
	}
	// Set up the quorum: new nodes serve only when all of them have answered once.
	req := driver.Request{Key: "first", ID: "first", TTL: time.Second}
	if reply, err := w.drivers[1].Acquire(t.Context(), req); err != nil || reply.State != driver.Granted {
		t.Fatal(reply, err)
	}
	if _, err := w.drivers[1].Release(t.Context(), driver.Ref{Key: req.Key, ID: req.ID}); err != nil {
		t.Fatal(err)
	}
	w.stop = func() {
		for _, d := range all {
			_ = d.Close()
		}
	}
	return w
}

// serviceOn opens two clients of two services on one store. Faults are on the way from the first client
// to the services, or behind them, on their way to the store.
func serviceOn(store func() backing, behind bool, opts ...server.Option) func(*testing.T) *world {
	return func(t *testing.T) *world { return services(t, store(), behind, opts...) }
}

// backing is a store behind services, with a function that opens a client with faults.
type backing struct {
	shelf
	suffering func(*weather) driver.Driver
}

func tables() backing {
	shelf := newTable()
	return backing{shelf, func(w *weather) driver.Driver { return w.reach(shelf, shelf.join()) }}
}

func keyspaces() backing {
	k := newKeyspace()
	return backing{k, func(w *weather) driver.Driver { return k.open(w) }}
}

// onDeafService has a gateway between clients and services that holds back the events of all streams.
func onDeafService(t *testing.T) *world {
	w := services(t, tables(), false)
	for _, sky := range w.skies {
		sky.deaf = true
	}
	return w
}

func services(t *testing.T, store backing, behind bool, opts ...server.Option) *world {
	w := &world{weather: new(weather), tables: []shelf{store.shelf}, behind: behind}
	var stores [2]driver.Driver
	for i := range stores {
		stores[i] = w.tables[0].join()
		if behind {
			stores[i] = store.suffering(w.weather)
		}
	}
	end := w.serve(t, stores, opts...)
	for i := range w.drivers {
		if i == 1 && behind { // the second client uses the store directly
			w.drivers[1] = w.tables[0].join()
			break
		}
		suffers := &sky{weather: new(weather), table: w.tables[0], replicas: w.urls[:]}
		if i == 0 && !behind {
			suffers.weather = w.weather
		}
		d, err := httpdriver.Open("http://service", httpdriver.WithClient(&http.Client{Transport: suffers}), httpdriver.WithTimeout(1500*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		w.drivers[i] = d
		w.skies = append(w.skies, suffers)
		if i == 0 {
			w.raw = &sky{weather: suffers.weather, table: w.tables[0], replicas: w.urls[:], streams: true}
		}
	}
	w.stop = end
	return w
}

// onServiceOnQuorum is two services on a quorum of three. Faults are on the way from the first
// service to one node. The second client uses the quorum itself.
func onServiceOnQuorum(t *testing.T) *world {
	w := onQuorum(t)
	nodes, end := w.stop, w.serve(t, w.drivers)
	calm := &sky{weather: new(weather), table: w.tables[0], replicas: w.urls[:]}
	w.raw, w.aim = calm, calm.first
	w.drivers = [2]driver.Driver{open{w.drivers[0]}, open{w.drivers[1]}}
	w.stop = func() {
		end()
		nodes()
	}
	return w
}

// open is a shared driver. Its Close has no effect.
type open struct{ driver.Driver }

func (open) Close() error            { return nil }
func (o open) Unwrap() driver.Driver { return o.Driver }

// serve starts a service on each store, and returns a function that ends them.
func (w *world) serve(t *testing.T, stores [2]driver.Driver, opts ...server.Option) (end func()) {
	var ends []func()
	defer func() { w.shut = ends[0] }()
	for i, store := range stores {
		s, err := server.New(store, append(opts, server.WithStoreTimeout(time.Second))...)
		if err != nil {
			t.Fatal(err)
		}
		l := pipenet.Listen()
		go func() { _ = s.Serve(l, nil) }()
		transport := &http.Transport{DialContext: l.Dial, DisableCompression: true}
		w.urls[i] = transport
		ends = append(ends, func() {
			transport.CloseIdleConnections()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := s.Shutdown(ctx); err != nil {
				t.Errorf("shutdown: %v", err)
			}
			_ = l.Close()
		})
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// sky sends requests to replicas in turn.
type sky struct {
	*weather
	table    shelf
	replicas []http.RoundTripper
	// streams means that requests for a stream of events meet faults. Streams of a client of the
	// library do not: their events only make it faster.
	streams bool
	// deaf means that a stream of a client of the library begins, and no event follows.
	deaf bool

	mu sync.Mutex
	n  int
}

// first sends the next request to the first replica.
func (s *sky) first() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n = 0
}

func (s *sky) RoundTrip(req *http.Request) (*http.Response, error) {
	stream := strings.HasSuffix(req.URL.Path, "/events")
	if stream && s.deaf {
		resp, err := s.replicas[0].RoundTrip(req)
		if err == nil {
			resp.Body = &keptBack{ReadCloser: resp.Body, end: req.Context().Done()}
		}
		return resp, err
	}
	if stream && !s.streams {
		return s.replicas[0].RoundTrip(req)
	}
	s.mu.Lock()
	n := s.n
	to := s.replicas[n%len(s.replicas)]
	s.n++
	s.mu.Unlock()
	var body string
	if req.Body != nil {
		read, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		_ = req.Body.Close()
		body = string(read)
	}
	var got atomic.Pointer[http.Response]
	send := func(ctx context.Context) error {
		end := func() {}
		if stream {
			ctx, end = context.WithTimeout(ctx, attention) // a request that is not answered has no other end
		}
		copied := req.Clone(ctx)
		copied.Body = io.NopCloser(strings.NewReader(body))
		resp, err := to.RoundTrip(copied)
		if err == nil && stream && resp.StatusCode == http.StatusOK {
			resp.Body = streamed{resp.Body, end}
			got.Store(resp)
			return nil
		}
		defer end()
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return err
		}
		resp.Body = io.NopCloser(strings.NewReader(string(text)))
		got.Store(resp)
		return nil
	}
	page := func(status int) (*http.Response, error) {
		const text = "<html>the gateway says so</html>"
		return &http.Response{
			StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {"text/html"}, "Retry-After": {"1"}}, Body: io.NopCloser(strings.NewReader(text)),
			ContentLength: int64(len(text)), Request: req,
		}, nil
	}
	fate := s.next()
	if fate == gatewayAfter || fate == only503 {
		_ = send(context.WithoutCancel(req.Context()))
	}
	switch fate {
	case only503, refused:
		return page(503)
	case gateway, gatewayAfter:
		statuses := []int{503, 502, 408, 404, 504, 413, 400, 429, 410, 409, 403}
		return page(statuses[n%len(statuses)])
	case noDial:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EMFILE}
	}
	if err := meet(req.Context(), fate, s.weather, s.table, send); err != nil {
		return nil, err
	}
	return got.Load(), nil
}

// keptBack is the body of a stream of which only the beginning arrives.
type keptBack struct {
	io.ReadCloser
	end   <-chan struct{}
	began bool
}

func (k *keptBack) Read(p []byte) (int, error) {
	if k.began {
		<-k.end
		return 0, io.ErrUnexpectedEOF
	}
	n, err := k.ReadCloser.Read(p)
	k.began = strings.Contains(string(p[:n]), "event: ready")
	return n, err
}

// attention is how long a stream is read.
const attention = 3 * time.Second

// streamed is the body of a stream, which ends when it is closed.
type streamed struct {
	io.ReadCloser
	end context.CancelFunc
}

func (s streamed) Close() error {
	s.end()
	return s.ReadCloser.Close()
}
