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
	mu        sync.Mutex
	ended     bool
	listeners []net.Listener
	serving   sync.WaitGroup     // goroutines that accept
	silent    map[*conn]struct{} // connections without a request
	waiting   []chan struct{}    // closed when none is silent any more
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
	i.serving.Add(1)
	i.mu.Unlock()
	defer i.serving.Done()
	err := accept()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
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
	i.tell()
}

// tell closes the channels of settled if no connection is silent. The caller holds mu.
func (i *intake) tell() {
	if len(i.silent) > 0 {
		return
	}
	for _, settled := range i.waiting {
		close(settled)
	}
	i.waiting = nil
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
	select {
	case <-i.settled():
	case <-ctx.Done():
		for _, c := range i.rest() {
			_ = c.Close()
		}
	}
	return errors.Join(errs...)
}

// settled returns a channel that is closed when no goroutine accepts any more, and no connection is
// silent.
func (i *intake) settled() <-chan struct{} {
	settled := make(chan struct{})
	go func() {
		i.serving.Wait()
		i.mu.Lock()
		defer i.mu.Unlock()
		i.waiting = append(i.waiting, settled)
		i.tell()
	}()
	return settled
}

// rest returns the connections that are silent.
func (i *intake) rest() (all []*conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for c := range i.silent {
		all = append(all, c)
	}
	return all
}
