package express

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"sync"
)

// exchange is one request: the context of its handler, and its body. The context
// ends when the client has gone, or the request has been answered. Whether the
// client has gone is found out for who asks for Done, from then on: few do, and
// the others are not to pay for it.
//
// It is one piece of memory with the request, which a handler may keep.
type exchange struct {
	context.Context // of the connection
	c               *conn
	request         http.Request
	url             url.URL
	body            body

	mu       sync.Mutex
	done     chan struct{} // nil until it is asked for
	answered bool          // nobody looks for the client's end any more
	err      error
}

// body is that of a request, which is here whole.
type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

// of makes the exchange that of a request, which is what the handler is given.
func (x *exchange) of(p *plain) *http.Request {
	x.url = p.url
	x.request = *(&http.Request{
		Method: p.method, URL: &x.url, RequestURI: p.target, Host: p.host, Header: p.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: http.NoBody, ContentLength: int64(len(p.body)), RemoteAddr: x.c.remote,
	}).WithContext(x)
	if len(p.body) > 0 {
		x.body.Reset(p.body)
		x.request.Body = &x.body
	}
	return &x.request
}

// Done implements [context.Context].
func (x *exchange) Done() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.done == nil {
		x.done = make(chan struct{})
		switch {
		case x.err != nil:
			close(x.done)
		case !x.answered:
			x.c.watch(x)
		}
	}
	return x.done
}

// Err implements [context.Context].
func (x *exchange) Err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err
}

// answer has the connection left alone, whoever may still ask for Done.
func (x *exchange) answer() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answered = true
}

// end ends the context.
func (x *exchange) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return
	}
	x.err = context.Canceled
	if x.done != nil {
		close(x.done)
	}
}
