package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// firstRequest bounds the wait for the first request of an open connection when the service
// ends.
const firstRequest = time.Second

// intake holds the listeners of the service, and the silent connections, which are those without
// a request so far. [http.Server.Shutdown] reads the first HTTP/1 request on a silent connection
// and does not answer it, so the service ends its intake before. If another process such as
// systemd holds the socket, a restart then fails no request of a new connection.
type intake struct {
	silent sync.Map // its keys are the silent connections, as *conn

	mu        sync.Mutex
	ended     bool
	listeners []net.Listener
	accepting int // goroutines
}

// serve runs accept, which serves the connections of l. After the end it closes l.
func (i *intake) serve(l net.Listener, accept func() error) error {
	i.mu.Lock()
	if i.ended {
		i.mu.Unlock()
		_ = l.Close()
		return http.ErrServerClosed
	}
	i.listeners = append(i.listeners, l)
	i.accepting++
	i.mu.Unlock()
	err := accept()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.accepting--; i.ended {
		return http.ErrServerClosed
	}
	return err
}

// end closes the listeners, waits until every connection has had a request, for firstRequest at
// most, and closes the connections that are still silent. The end of ctx ends the wait. It
// returns the errors of the listeners.
func (i *intake) end(ctx context.Context) error {
	i.mu.Lock()
	i.ended = true
	listeners := i.listeners
	i.listeners = nil
	i.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, firstRequest)
	defer cancel()
	for !i.settled() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	for c := range i.silent.Range {
		_ = c.(*conn).Close()
	}
	return errors.Join(errs...)
}

// settled reports whether no goroutine accepts any more, and no connection is silent.
func (i *intake) settled() bool {
	i.mu.Lock()
	accepting := i.accepting
	i.mu.Unlock()
	for range i.silent.Range { // read after accepting, since a goroutine that accepts adds to it
		return false
	}
	return accepting == 0
}
