package explore_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/teststore"
)

// sender sends the messages of one process to a store or a service, through a post.
type sender struct {
	*post
	from  string
	table *teststore.Table // which the store may forget; nil for a service
}

// answer is the answer to a message.
type answer[T any] struct {
	reply T
	err   error
}

// mail sends a message. f is its effect.
func mail[T any](ctx context.Context, s sender, what string, f func(context.Context) (T, error)) (T, error) {
	var none T
	answers := make(chan answer[T], 1)
	arrive := func() {
		reply, err := f(context.Background())
		answers <- answer[T]{reply, err}
	}
	switch fate := s.send(s.from, what); fate {
	case lost:
		return none, errNoAnswer
	case late:
		s.after(lateness, arrive)
		return none, errNoAnswer
	case unanswered:
		arrive()
		return none, errNoAnswer
	case slow:
		arrive()
		select {
		case <-time.After(slowness):
		case <-ctx.Done():
			return none, ctx.Err()
		}
	case delayed:
		s.after(while, arrive)
	case awaited:
		s.after(0, func() {
			reply, err := f(context.Background())
			time.Sleep(while)
			answers <- answer[T]{reply, err}
		})
	case forgets:
		s.forget(s.table)
		return f(ctx)
	default:
		return f(ctx)
	}
	select {
	case a := <-answers:
		return a.reply, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// mailed is a store that one process calls through a post.
type mailed struct {
	driver.Wrapper
	sender
	ids bool // messages name their leases
}

// reach returns a store as a process reaches it through the post. The store stays open for late
// messages until the end of the test.
func (p *post) reach(t *testing.T, from string, table *teststore.Table, store driver.Driver) *mailed {
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &mailed{Wrapper: driver.Wrapper{Driver: store}, sender: sender{p, from, table}}
}

func (m *mailed) Close() error { return nil }

// about returns the text of a message about a lease.
func (m *mailed) about(what, id string) string {
	if m.ids {
		return what + " " + id
	}
	return what
}

func (m *mailed) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	return mail(ctx, m.sender, m.about("acquire", req.ID), func(ctx context.Context) (driver.Reply, error) {
		reply, err := m.Driver.Acquire(ctx, req)
		if err == nil && reply.State == driver.Granted {
			m.granted(req.ID)
		}
		return reply, err
	})
}

func (m *mailed) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	for i, ref := range refs {
		reply, err := mail(ctx, m.sender, m.about("renew", ref.ID), func(ctx context.Context) (reply driver.Reply, err error) {
			m.Driver.Renew(ctx, []driver.Ref{ref}, func(_ int, r driver.Reply, e error) { reply, err = r, e })
			return reply, err
		})
		each(i, reply, err)
	}
}

func (m *mailed) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	return mail(ctx, m.sender, m.about("release", ref.ID), func(ctx context.Context) (driver.Reply, error) {
		return m.Driver.Release(ctx, ref)
	})
}

// Watch implements [driver.Watcher]. Hints are sent by the post too.
func (m *mailed) Watch(hear func(driver.Hint)) (driver.Subscription, error) {
	var mu sync.Mutex // one at a time
	tell := func(h driver.Hint) {
		mu.Lock()
		defer mu.Unlock()
		hear(h)
	}
	inner, _ := driver.As[driver.Watcher](m.Driver)
	return inner.Watch(func(h driver.Hint) {
		m.strays.Go(func() { // a store does not wait
			switch m.send(m.from, "hint") {
			case lost, unanswered:
			case slow:
				m.after(slowness, func() { tell(h) })
			case late:
				m.after(lateness, func() { tell(h) })
			default:
				tell(h)
			}
		})
	})
}

// marker returns the store, with messages about its mark.
func (m *mailed) marker() driver.Marker {
	inner, _ := driver.As[driver.Marker](m.Driver)
	return inner
}

func (m *mailed) Marked(ctx context.Context) (mark driver.Mark, ok bool, err error) {
	type marked struct {
		driver.Mark
		ok bool
	}
	got, err := mail(ctx, m.sender, "look at the mark", func(ctx context.Context) (v marked, err error) {
		v.Mark, v.ok, err = m.marker().Marked(ctx)
		return v, err
	})
	return got.Mark, got.ok, err
}

func (m *mailed) Reserve(ctx context.Context, by string, life time.Duration) (bool, error) {
	return mail(ctx, m.sender, "reserve", func(ctx context.Context) (bool, error) {
		return m.marker().Reserve(ctx, by, life)
	})
}

func (m *mailed) Mark(ctx context.Context, mark driver.Mark, by string) error {
	_, err := mail(ctx, m.sender, "mark", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, m.marker().Mark(ctx, mark, by)
	})
	return err
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
	return mail(req.Context(), m.sender, req.Method, func(ctx context.Context) (*http.Response, error) {
		copied := req.Clone(ctx)
		copied.Body = io.NopCloser(strings.NewReader(body))
		resp, err := m.next().RoundTrip(copied)
		if err != nil {
			return nil, err
		}
		text, err := readAll(resp.Body)
		resp.Body = io.NopCloser(strings.NewReader(text))
		return resp, err
	})
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
