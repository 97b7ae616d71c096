package browsertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
	"github.com/leasehold-go/leasehold/server"
)

// patience bounds the wait for a change of the page. It usually takes a second, and much longer
// on a busy machine.
const patience = 2 * time.Minute

// browser is the browser of all tests. Each test has a tab of its own.
var browser struct {
	once sync.Once
	ctx  context.Context
	stop context.CancelFunc
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if browser.stop != nil {
		browser.stop()
	}
	os.Exit(code)
}

func startBrowser() {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		browser.err = fmt.Errorf("there is no chromium: make nested installs it")
		return
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.WSURLReadTimeout(patience))
	allocated, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(allocated)
	browser.ctx, browser.stop = ctx, func() { cancel(); stop() }
	browser.err = chromedp.Run(ctx)
}

// tab is a page in a tab of the browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// open opens a page of some size. Errors that the browser reports fail the test.
func open(t *testing.T, url string, width, height int64, actions ...chromedp.Action) *tab {
	t.Helper()
	browser.once.Do(startBrowser)
	if browser.err != nil {
		t.Fatal(browser.err)
	}
	ctx, cancel := chromedp.NewContext(browser.ctx)
	ctx, late := context.WithTimeout(ctx, 3*patience)
	p := &tab{t: t, ctx: ctx}
	t.Cleanup(func() {
		late()
		cancel()
	})
	chromedp.ListenTarget(ctx, func(e any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			p.problems = append(p.problems, e.ExceptionDetails.Error())
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.LevelError {
				p.problems = append(p.problems, e.Entry.Text+" "+e.Entry.URL)
			}
		}
	})
	p.do(append(append([]chromedp.Action{chromedp.EmulateViewport(width, height)}, actions...), chromedp.Navigate(url))...)
	return p
}

// clean fails the test if the browser has reported an error, for example a breach of the policy
// of the page.
func (p *tab) clean() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range p.problems {
		p.t.Errorf("the browser reports: %s", text)
	}
}

func dark() chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}})
}

func (p *tab) do(actions ...chromedp.Action) {
	p.t.Helper()
	if err := chromedp.Run(p.ctx, actions...); err != nil {
		p.t.Fatalf("%v; the text of the page: %.2000s", err, p.said())
	}
}

// said returns the text of the page, for a failure.
func (p *tab) said() (text string) {
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body.innerText`, &text))
	return text
}

// js evaluates an expression.
func js[T any](p *tab, expression string, opts ...chromedp.EvaluateOption) (v T) {
	p.t.Helper()
	p.do(chromedp.Evaluate(expression, &v, opts...))
	return v
}

// until waits until an expression is true.
func (p *tab) until(what, expression string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		var is bool
		if err := chromedp.Run(p.ctx, chromedp.Evaluate("!!("+expression+")", &is)); err == nil && is {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("did not appear: %s; the text of the page: %.2000s", what, p.said())
		}
	}
}

// says waits until the page contains a text.
func (p *tab) says(text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("%q", text), fmt.Sprintf("document.body.innerText.includes(%s)", quoted(text)))
}

// row is an expression for the row of a lock.
func row(key string) string {
	return fmt.Sprintf("[...document.querySelectorAll('#locks tbody tr')].find((r) => r.dataset.key === %s)", quoted(key))
}

func (p *tab) rowSays(key, text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("%q in the row of %q", text, key), fmt.Sprintf("%s?.innerText.includes(%s)", row(key), quoted(text)))
}

func (p *tab) click(expression string) {
	p.t.Helper()
	p.until(expression, expression)
	js[any](p, "("+expression+").click(), null")
}

func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// service is a service with a page, with its store and log.
type service struct {
	t     *testing.T
	store driver.Driver
	s     *server.Server
	url   string
	log   *recording
	proxy *tcpproxy.Proxy // on the way of all clients
	away  atomic.Bool     // the proxy connects to a closed port
}

// recording stores the log.
type recording struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *recording) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *recording) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// start serves a store below /below/a/proxy/, as behind a proxy that removes this prefix.
func start(t *testing.T, store driver.Driver, opts ...server.Option) *service {
	t.Helper()
	v := &service{t: t, store: store, log: new(recording)}
	opts = append([]server.Option{
		server.WithPage(server.PageFull), server.WithStoreName("redis://locks.internal:6379"), server.WithLogger(slog.New(slog.NewJSONHandler(v.log, nil))),
	}, opts...)
	var err error
	v.s, err = server.New(store, opts...)
	noErr(t, err)
	mux := http.NewServeMux()
	mux.Handle(below, http.StripPrefix(strings.TrimSuffix(below, "/"), v.s))
	h := httptest.NewServer(mux)
	v.proxy = tcpproxy.Balance(t, func() string {
		if v.away.Load() {
			return "127.0.0.1:1" // is closed
		}
		return h.Listener.Addr().String()
	})
	v.url = "http://" + v.proxy.Addr() + below
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		noErr(t, v.s.Close())
	})
	return v
}

const below = "/below/a/proxy/"

// fail cuts the service off; heal ends that.
func (v *service) fail() { v.away.Store(true); v.proxy.CutAll() }
func (v *service) heal() { v.away.Store(false) }

var noErr = ask.NoError

// take takes a lock in the store, as a program does that does not use the service.
func (v *service) take(req driver.Request) driver.Reply {
	v.t.Helper()
	if req.ID == "" {
		req.ID = "lease-" + fmt.Sprint(time.Now().UnixNano())
	}
	if req.TTL == 0 {
		req.TTL = time.Hour
	}
	if req.Since.IsZero() {
		req.Since = time.Now()
	}
	got, err := v.store.Acquire(context.Background(), req)
	noErr(v.t, err)
	return got
}

// breaks ends a lease in the store by force.
func (v *service) breaks(key, id, reason string) {
	v.t.Helper()
	_, err := v.store.(driver.Breaker).Break(v.t.Context(), key, id, reason)
	noErr(v.t, err)
}

// ask sends a request to the service.
func (v *service) ask(method, path, body string) (int, string) {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), method, v.url+path, strings.NewReader(body))
	noErr(v.t, err)
	res, err := http.DefaultClient.Do(req)
	noErr(v.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	noErr(v.t, err)
	return res.StatusCode, string(text)
}
