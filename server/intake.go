package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// firstRequest is how long the first request of an open connection may take to come
// when the service ends.
const firstRequest = time.Second

// intake are the listeners of the service, and the connections on which nothing has been
// asked yet. [http.Server.Shutdown] reads what is asked on those by HTTP/1, and does not
// answer it: so the service ends its intake first. Then a restart fails no request of a
// new connection where something else holds the socket meanwhile, as systemd does.
type intake struct {
	mu        sync.Mutex
	ended     bool
	listeners []net.Listener
	serving   sync.WaitGroup     // those that accept
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

// accepted notes a connection, on which nothing has been asked.
func (i *intake) accepted(c *conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.silent == nil {
		i.silent = make(map[*conn]struct{})
	}
	i.silent[c] = struct{}{}
}

// heard notes that something has been asked on a connection, or that nothing will be.
func (i *intake) heard(c *conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.silent, c)
	i.tell()
}

// tell tells those who wait that nobody is silent, if so. The caller holds mu.
func (i *intake) tell() {
	if len(i.silent) > 0 {
		return
	}
	for _, settled := range i.waiting {
		close(settled)
	}
	i.waiting = nil
}

// end closes the listeners, waits until something has been asked on every connection, for
// firstRequest at most, and closes those that are silent still. It returns early with ctx,
// and returns the errors of the listeners.
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

// settled returns a channel that is closed when nothing is accepted any more, and nobody is
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
