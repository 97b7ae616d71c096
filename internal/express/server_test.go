package express

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is more than anything here takes.
const patience = 30 * time.Second

// by says which of the two servers answered.
const by = "Served-By"

// start serves: requests for paths below /short go to handler here, all others
// to net/http, which says so.
func start(t *testing.T, handler http.HandlerFunc, change ...func(*Server)) (addr string, s *Server) {
	t.Helper()
	s = &Server{
		Handler: handler,
		Takes:   func(_, path string) bool { return strings.HasPrefix(path, "/short") },
		Rest: &http.Server{
			ReadHeaderTimeout: patience, IdleTimeout: patience, ErrorLog: log.New(io.Discard, "", 0),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				w.Header().Set(by, "rest")
				_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, body)
			}),
		},
	}
	for _, f := range change {
		f(s)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
		<-s.emptied()
	})
	return l.Addr().String(), s
}

// client is a connection to a server.
type client struct {
	net.Conn
	t  *testing.T
	in *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &client{c, t, bufio.NewReader(c)}
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	length int64
	last   bool // the connection ends with it
	body   string
}

// answer reads one.
func (c *client) answer() reply {
	c.t.Helper()
	r, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return reply{r.StatusCode, r.Header, r.ContentLength, r.Close, string(body)}
}

// closed reports whether the server closes the connection without a word.
func (c *client) closed() bool {
	_, err := c.in.ReadByte()
	var late net.Error
	return err != nil && (!errors.As(err, &late) || !late.Timeout())
}

func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n" }

// echo answers what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusAccepted)
	_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, body)
}

func TestServer_AnswersRequestsOfOneConnectionInTheirOrder(t *testing.T) {
	addr, _ := start(t, echo)
	c := dial(t, addr)
	post := "POST /short HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
	for range 3 {
		c.send(post + "{}" + get("/short/a?b=c") + post + "[]")
		for _, want := range []string{"POST /short {}", "GET /short/a?b=c ", "POST /short []"} {
			r := c.answer()
			if r.body != want || r.status != http.StatusAccepted || r.header.Get(by) != "" || r.length != int64(len(want)) {
				t.Errorf("%+v, want %q", r, want)
			}
			if _, err := time.Parse(http.TimeFormat, r.header.Get("Date")); err != nil || r.header.Get("Content-Type") != "text/plain" {
				t.Errorf("header %v", r.header)
			}
		}
	}
}

// Whatever is not plain is answered by net/http, and so is what follows it on
// the connection.
func TestServer_PassesAConnectionOnWithAllThatWasRead(t *testing.T) {
	head := "POST /short HTTP/1.1\r\nHost: x\r\n"
	for what, text := range map[string]string{
		"another path":   "POST /long HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab",
		"chunks":         head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
		"a bare newline": "POST /short HTTP/1.1\nHost: x\nContent-Length: 2\n\nab",
		"a large body":   head + "Content-Length: 10000\r\n\r\n" + strings.Repeat("a", 10000),
	} {
		addr, s := start(t, echo)
		c := dial(t, addr)
		c.send(get("/short/first"))
		if r := c.answer(); r.header.Get(by) != "" || r.body != "GET /short/first " {
			t.Errorf("%s: at first %+v", what, r)
		}
		c.send(text + get("/short/next"))
		for _, want := range []string{"POST /", "GET /short/next"} {
			if r := c.answer(); r.header.Get(by) != "rest" || !strings.HasPrefix(r.body, want) {
				t.Errorf("%s: %+v, want %s from net/http", what, r, want)
			}
		}
		<-s.emptied()
	}
}

func TestServer_PassesOnARequestThatComesInPieces(t *testing.T) {
	addr, s := start(t, echo)
	c := dial(t, addr)
	c.send(get("/short"))
	c.answer()
	c.send("POST /short HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
	<-s.emptied() // the rest comes when it has been passed on
	c.send("b")
	if r := c.answer(); r.header.Get(by) != "rest" || r.body != "POST /short ab" {
		t.Errorf("%+v", r)
	}
}

func TestServer_SaysWhatTheHandlerSaysAndNothingThatWouldBreakTheAnswer(t *testing.T) {
	addr, _ := start(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/short/odd":
			h := w.Header()
			h["Content-Length"], h["X-Two"], h["X-Split"], h["X Space"] = []string{"7"}, []string{"a", "b"}, []string{"a\r\nX-More: b"}, []string{"c"}
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
			w.WriteHeader(http.StatusOK)
			_, _ = io.WriteString(w, "pot")
		case "/short/none":
			w.WriteHeader(http.StatusNoContent)
			if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Errorf("a body with 204: %v", err)
			}
		case "/short/last":
			w.Header().Set("Connection", "close")
		}
	})
	c := dial(t, addr)
	c.send(get("/short/odd") + get("/short/none") + get("/short/last") + get("/short/late"))
	r := c.answer()
	if r.status != http.StatusTeapot || r.body != "pot" || fmt.Sprint(r.header["X-Two"]) != "[a b]" || len(r.header) != 3 || r.length != 3 {
		t.Errorf("%+v", r)
	}
	if r := c.answer(); r.status != http.StatusNoContent || r.body != "" || r.header.Get("Content-Length") != "" {
		t.Errorf("%+v, want nothing", r)
	}
	if r := c.answer(); r.status != http.StatusOK || r.body != "" || !r.last {
		t.Errorf("%+v, want the last", r)
	}
	if !c.closed() {
		t.Error("the connection goes on after the last answer")
	}
}

func TestServer_TellsAHandlerThatWaitsWhenItsClientGoes(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	addr, _ := start(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Context().Err() != nil {
			t.Error("the context has ended before the client")
		}
		gone := r.Context().Done()
		close(began)
		<-gone
		ended <- r.Context().Err()
	})
	c := dial(t, addr)
	c.send(get("/short"))
	<-began
	_ = c.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the context ended with %v", err)
	}
}

// A client that sends its next request while it is answered has not gone.
func TestServer_KeepsWhatComesWhileAHandlerWaits(t *testing.T) {
	came := make(chan struct{})
	addr, _ := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/short/wait" {
			gone := r.Context().Done()
			came <- struct{}{}
			<-came
			select {
			case <-gone:
				t.Error("the client is said to have gone")
			default:
			}
		}
		echo(w, r)
	})
	c := dial(t, addr)
	for range 3 {
		c.send(get("/short/wait"))
		<-came
		c.send(get("/short/next"))
		came <- struct{}{}
		for _, want := range []string{"GET /short/wait ", "GET /short/next "} {
			if r := c.answer(); r.body != want || r.header.Get(by) != "" {
				t.Errorf("%+v, want %q", r, want)
			}
		}
	}
}

func TestServer_EndsTheContextWithTheRequest(t *testing.T) {
	contexts := make(chan context.Context, 2)
	addr, _ := start(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/short/asks" {
			_ = r.Context().Done()
		}
		contexts <- r.Context()
	})
	c := dial(t, addr)
	for _, path := range []string{"/short", "/short/asks"} {
		c.send(get(path))
		c.answer()
		ctx := <-contexts
		<-ctx.Done()
		if err := ctx.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the context ended with %v", path, err)
		}
		if ctx.Value(http.ServerContextKey) == nil || ctx.Value(http.LocalAddrContextKey) == nil {
			t.Errorf("%s: the context lacks the values of net/http", path)
		}
	}
}

// A context is for several goroutines, of which some outlive the handler.
func TestServer_LetsAnybodyAskForTheEndOfTheContextAtAnyTime(t *testing.T) {
	var late sync.WaitGroup
	addr, _ := start(t, func(w http.ResponseWriter, r *http.Request) {
		for range 3 {
			late.Go(func() { <-r.Context().Done() })
		}
		echo(w, r)
	})
	c := dial(t, addr)
	for range 300 {
		c.send(get("/short"))
		if r := c.answer(); r.body != "GET /short " || r.header.Get(by) != "" {
			t.Fatalf("%+v", r)
		}
	}
	late.Wait()
}

func TestServer_DropsTheConnectionOfAHandlerThatPanics(t *testing.T) {
	var logged syncBuilder
	addr, _ := start(t, func(_ http.ResponseWriter, r *http.Request) {
		_ = r.Context().Done()
		if r.URL.Path == "/short/abort" {
			panic(http.ErrAbortHandler)
		}
		panic("broken")
	}, func(s *Server) { s.Rest.ErrorLog = log.New(&logged, "", 0) })
	for path, want := range map[string]string{"/short/abort": "", "/short/break": "broken"} {
		logged.reset()
		c := dial(t, addr)
		c.send(get(path))
		if !c.closed() {
			t.Errorf("%s is answered", path)
		}
		if text := logged.String(); want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: logged %q", path, text)
		}
	}
}

// syncBuilder is text that several goroutines write.
type syncBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuilder) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuilder) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *syncBuilder) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.Reset()
}

func TestServer_ShutdownAnswersWhatIsUnderWayAndClosesTheRest(t *testing.T) {
	began, go_ := make(chan struct{}), make(chan struct{})
	addr, s := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/short/wait" {
			close(began)
			<-go_
		}
		echo(w, r)
	})
	silent, idle, busy := dial(t, addr), dial(t, addr), dial(t, addr)
	idle.send(get("/short"))
	idle.answer()
	busy.send(get("/short/wait"))
	<-began
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Shutdown(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown returned %v while a request was under way", err)
	}
	for what, c := range map[string]*client{"silent": silent, "idle": idle} {
		if !c.closed() {
			t.Errorf("the %s connection is left open", what)
		}
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		_ = c.Close()
		t.Error("it still listens")
	}
	ended := make(chan error)
	go func() { ended <- s.Shutdown(t.Context()) }()
	close(go_)
	if r := busy.answer(); r.body != "GET /short/wait " || !r.last {
		t.Errorf("%+v, want the last answer", r)
	}
	if err := <-ended; err != nil {
		t.Errorf("Shutdown returned %v", err)
	}
}

// piped serves one connection in virtual time.
func piped(t *testing.T, first, next time.Duration) *client {
	s := &Server{
		Handler: http.HandlerFunc(echo), Takes: func(string, string) bool { return true },
		Rest: &http.Server{ReadHeaderTimeout: first, IdleTimeout: next},
	}
	here, there := net.Pipe()
	s.add(&front{s: s}, there)
	t.Cleanup(func() { _ = here.Close() })
	return &client{here, t, bufio.NewReader(here)}
}

func TestServer_ClosesConnectionsThatAreSilentForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const first, next = 10 * time.Second, 2 * time.Minute
		begin := time.Now()
		if c := piped(t, first, next); !c.closed() || time.Since(begin) != first {
			t.Errorf("a connection without a request is kept for %v, want %v", time.Since(begin), first)
		}
		c := piped(t, first, next)
		time.Sleep(first - 1)
		// Requests come so long that deadlines pass which were set for the first ones.
		for range 100 {
			c.send(get("/"))
			c.answer()
			time.Sleep(next / 10)
		}
		begin = time.Now()
		if !c.closed() || time.Since(begin) > next || time.Since(begin) < next/2 {
			t.Errorf("a silent connection is kept for %v, want nearly %v", time.Since(begin), next)
		}
	})
}

// A client that sends and does not read holds a connection for a while only.
func TestServer_CutsOffWhoDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := piped(t, patience, patience)
		begin := time.Now()
		c.send(get("/"))
		synctest.Wait()
		time.Sleep(writeTimeout)
		synctest.Wait()
		if _, err := c.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%v after %v, want the connection closed", err, time.Since(begin))
		}
	})
}

// failing is a listener whose Accept fails once, as one without descriptors does.
type failing struct {
	net.Listener
	once sync.Once
}

func (f *failing) Accept() (c net.Conn, err error) {
	f.once.Do(func() { err = scarce{} })
	if err != nil {
		return nil, err
	}
	return f.Listener.Accept()
}

type scarce struct{}

func (scarce) Error() string   { return "too many open files" }
func (scarce) Timeout() bool   { return false }
func (scarce) Temporary() bool { return true }

func TestServer_OutlivesWhatKeepsItFromAccepting(t *testing.T) {
	s := &Server{Handler: http.HandlerFunc(echo), Takes: func(string, string) bool { return true }, Rest: &http.Server{ErrorLog: log.New(io.Discard, "", 0)}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- s.Serve(&failing{Listener: l}) }()
	c := dial(t, l.Addr().String())
	c.send(get("/"))
	if r := c.answer(); r.body != "GET / " {
		t.Errorf("answered %+v", r)
	}
	_ = l.Close() // somebody else closes it: Serve says so
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve returned %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-s.emptied()
}
