package explore_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/internal/test/teststore"
)

// sender sends the messages of one process to a store or a service, through a post.
type sender struct {
	*post
	from  string
	table *teststore.Table // which the store may forget; nil for a service
}

// mail sends a message. f is its effect.
func (s sender) mail(ctx context.Context, what string, f func(context.Context) error) error {
	done := make(chan error, 1)
	arrive := func() { done <- f(context.Background()) }
	switch s.send(s.from, what) {
	case lost:
		return errNoAnswer
	case late:
		s.after(lateness, arrive)
		return errNoAnswer
	case unanswered:
		arrive()
		return errNoAnswer
	case slow:
		arrive()
		select {
		case <-time.After(slowness):
		case <-ctx.Done():
			return ctx.Err()
		}
	case delayed:
		s.after(while, arrive)
	case awaited:
		s.after(0, func() {
			err := f(context.Background())
			time.Sleep(while)
			done <- err
		})
	case forgets:
		s.forget(s.table)
		return f(ctx)
	default:
		return f(ctx)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// recorder is a node that reports its grants, also to requests that are late.
type recorder struct {
	*roomdriver.Driver
	granted func(driver.Request, driver.Reply)
}

func (r recorder) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	reply, err := r.Driver.Acquire(ctx, req)
	if err == nil && reply.State == driver.Granted {
		r.granted(req, reply)
	}
	return reply, err
}

// reach returns a node as a process reaches it through the post. Messages name their leases if ids is
// set. The node stays open for late messages until the end of the test.
func (p *post) reach(t *testing.T, from string, table *teststore.Table, ids bool, granted func(driver.Request, driver.Reply)) driver.Driver {
	node, s := table.Join(), sender{p, from, table}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	d := intercept.New(recorder{node, granted}, func(ctx context.Context, m *intercept.Message, send func(context.Context) error) error {
		what := string(m.Verb)
		switch m.Verb {
		case intercept.Close:
			return nil
		case intercept.Inspect, intercept.List, intercept.Break:
			return send(ctx)
		}
		if ids && !m.Verb.OfMark() {
			what += " " + m.ID()
		}
		return s.mail(ctx, what, send)
	})
	d.Hint, d.Split = s.hint, true
	return d
}

// hint sends a hint. A store does not wait for its arrival.
func (s sender) hint(h driver.Hint, hear func(driver.Hint)) {
	s.strays.Go(func() {
		switch s.send(s.from, "hint") {
		case lost, unanswered:
		case slow:
			s.after(slowness, func() { hear(h) })
		case late:
			s.after(lateness, func() { hear(h) })
		default:
			hear(h)
		}
	})
}

// mailedHTTP sends requests to replicas of a service, through a post: two to each in turn, so that a
// repetition meets both the same and another replica.
type mailedHTTP struct {
	sender
	replicas []http.RoundTripper

	mu sync.Mutex
	n  int
}

func (m *mailedHTTP) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/events") {
		return m.replicas[0].RoundTrip(req) // a stream; its hints are sent by the post of the store
	}
	body, err := readAll(req.Body)
	if err != nil {
		return nil, err
	}
	var got atomic.Pointer[http.Response]
	err = m.mail(req.Context(), req.Method, func(ctx context.Context) error {
		copied := req.Clone(ctx)
		copied.Body = io.NopCloser(strings.NewReader(body))
		resp, err := m.next().RoundTrip(copied) //nolint:bodyclose // readAll closes it
		if err != nil {
			return err
		}
		text, err := readAll(resp.Body)
		resp.Body = io.NopCloser(strings.NewReader(text))
		got.Store(resp)
		return err
	})
	if err != nil {
		return nil, err
	}
	return got.Load(), nil
}

// next returns the replica for a request.
func (m *mailedHTTP) next() http.RoundTripper {
	m.mu.Lock()
	defer m.mu.Unlock()
	to := m.replicas[m.n/2%len(m.replicas)]
	m.n++
	return to
}

func readAll(body io.ReadCloser) (string, error) {
	if body == nil {
		return "", nil
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	return string(text), err
}
