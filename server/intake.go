package server

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
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
	mu        sync.Mutex
	ended     bool
	listeners []net.Listener
	accepting int                // goroutines
	silent    map[*conn]struct{} // connections without a request
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

// accepted notes a new connection as silent.
func (i *intake) accepted(c *conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.silent == nil {
		i.silent = make(map[*conn]struct{})
	}
	i.silent[c] = struct{}{}
}

// heard notes that a connection is no longer silent: it has had a request, or is closed.
func (i *intake) heard(c *conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.silent, c)
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
	for _, c := range i.rest() {
		_ = c.Close()
	}
	return errors.Join(errs...)
}

// settled reports whether no goroutine accepts any more, and no connection is silent.
func (i *intake) settled() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.accepting == 0 && len(i.silent) == 0
}

// rest returns the connections that are silent.
func (i *intake) rest() []*conn {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Collect(maps.Keys(i.silent))
}
