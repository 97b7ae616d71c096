package httpdriver_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// canned answers each request with the same answer.
type canned struct {
	status int
	media  string
	body   []byte
}

func (c *canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		Status: http.StatusText(c.status), StatusCode: c.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {c.media}}, Body: io.NopCloser(bytes.NewReader(c.body)), Request: r,
	}, nil
}

// transport is a [http.RoundTripper].
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// over returns a driver that receives the answers of f.
func over(tb testing.TB, f transport) *httpdriver.Driver {
	tb.Helper()
	return open(tb, "http://service", httpdriver.WithClient(&http.Client{Transport: f}))
}

// answering returns a driver on a service with the same answer to each request.
func answering(tb testing.TB, c *canned) *httpdriver.Driver {
	tb.Helper()
	return over(tb, c.RoundTrip)
}

// FuzzAnswer looks for answers from which the driver takes something that is not in them.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []struct {
		status int
		body   string
	}{
		{201, `{"key":"k","leaseId":"a","state":"held","token":7,"holds":1,"ttlMs":1000,"clockUs":5}`},
		{202, `{"key":"k","leaseId":"a","state":"queued","position":1,"freeInMs":-9223372036854775808}`},
		{409, `{"type":"https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#held","title":"x","status":409,"holders":[{"leaseId":"b","since":"0001-01-01T00:00:00Z"}]}`},
		{410, `{"type":"https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#broken","title":"x","broken":true,"reason":"y"}`},
		{200, `{"leases":[{"leaseId":"a","state":"held","token":9223372036854775807}]}`},
		{200, `{"leases":[{"problem":{"type":"","status":503}}]}`},
		{200, `{"keys":["k"],"cursor":"x"}`},
		{200, `{"key":"k","state":"held","holders":[{}],"waiters":[{"mode":"shared"}]}`},
	} {
		f.Add(seed.status, []byte(seed.body))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		skip.Unless(t, status >= 200 && status <= 599 && status/100 != 3, "a status that net/http does not handle itself")
		d := answering(t, &canned{status, "application/json", body})
		ctx := t.Context()
		ref := driver.Ref{Key: "k", ID: "a", TTL: time.Second}
		check := func(what string, reply driver.Reply, err error) {
			switch {
			case err != nil:
			case reply.State == driver.Granted && status > 299:
				t.Errorf("%s: granted by status %d %s", what, status, body)
			case reply.State == driver.Gone && !bytes.Contains(body, []byte("#")) && !bytes.Contains(body, []byte(`one`)) && !bytes.Contains(body, []byte(`\u`)):
				t.Errorf("%s: gone by %d %s", what, status, body)
			}
		}
		reply, err := d.Acquire(ctx, driver.Request{Key: "k", ID: "a", TTL: time.Second})
		check("acquire", reply, err)
		reply, err = d.Release(ctx, ref)
		check("release", reply, err)
		d.Renew(ctx, []driver.Ref{ref}, func(_ int, reply driver.Reply, err error) { check("renew", reply, err) })
		_, _ = d.Inspect(ctx, "k")
		_, _, _ = d.List(ctx, "", "")
	})
}

// FuzzStream looks for streams of events that break the driver.
func FuzzStream(f *testing.F) {
	f.Add([]byte("event: ready\ndata: {\"address\":\"x\"}\n\n:\n\nevent: granted\ndata: {\"leaseId\":\"a\",\"token\":1,\"clockUs\":2,\"confirmMs\":3}\n\n"))
	f.Add([]byte("event: broken\ndata: {\"leaseId\":\ndata: \"a\"}\n\n"))
	f.Add([]byte("event:ready\ndata:null\n\nevent: lock\ndata: {}\n\n"))
	f.Add([]byte("data: x\n\n\r\nevent: ask\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		ended := make(chan struct{})
		answer := canned{200, "text/event-stream", text}
		d := over(t, func(r *http.Request) (*http.Response, error) {
			res, err := answer.RoundTrip(r)
			res.Body = body{res.Body, sync.OnceFunc(func() { close(ended) })}
			return res, err
		})
		sub, err := d.Watch(func(h driver.Hint) {
			if h.Kind == driver.HintGranted && !strings.Contains(string(text), "granted") {
				t.Errorf("%+v of %q", h, text)
			}
		})
		noErr(t, err)
		<-ended
		noErr(t, sub.Close())
		noErr(t, d.Close())
	})
}

// body is the body of an answer, which calls closed at its end.
type body struct {
	io.Reader
	closed func()
}

func (b body) Close() error {
	b.closed()
	return nil
}
