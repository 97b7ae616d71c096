package explore_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/internal/test/teststore"
)

// sender sends the messages of one process to a node, through a post.
type sender struct {
	*post
	from  string
	table *teststore.Table // which the node may forget
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

// reach returns a node as a process reaches it through the post. The node stays open for late messages
// until the end of the test.
func (p *post) reach(t *testing.T, from string, table *teststore.Table, granted func(driver.Request, driver.Reply)) driver.Driver {
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
		if !m.Verb.OfMark() {
			what += " " + m.ID()
		}
		return s.mail(ctx, what, send)
	})
	d.Split = true
	return d
}
