package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	httpserver "github.com/leasehold-go/leasehold/server"
)

// startService serves the store on the Redis server at addr.
func startService(redis string) (addr string, stop func(), err error) {
	store, err := openRueidis(redis)
	if err != nil {
		return "", nil, err
	}
	srv, err := httpserver.New(store)
	if err != nil {
		return "", nil, errors.Join(err, store.Close())
	}
	return listen(func(l net.Listener) error { return srv.Serve(l, nil) }, srv.Close)
}

// startFloor serves a lock by the simplest possible handler of net/http. It does
// not wait, and does not check requests.
func startFloor(redis string) (addr string, stop func(), err error) {
	store, err := openRueidis(redis)
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: floor(store)}
	return listen(srv.Serve, func() error { return errors.Join(srv.Close(), store.Close()) })
}

func floor(store driver.Driver) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(r.URL.Path, "/")
		var err error
		status := http.StatusNoContent
		if r.Method == http.MethodDelete {
			_, err = store.Release(r.Context(), driver.Ref{Key: parts[3], ID: parts[5]})
		} else {
			status = http.StatusCreated
			body, _ := io.ReadAll(r.Body)
			id := strings.Split(string(body), `"`)[3]
			_, err = store.Acquire(r.Context(), driver.Request{Key: parts[3], ID: id, Since: time.Now(), TTL: outlast})
		}
		if err != nil {
			status = http.StatusServiceUnavailable
		}
		w.WriteHeader(status)
	}
}

// listen serves on a port of its own until stop is called. stop calls shut, which ends
// serve.
func listen(serve func(net.Listener) error, shut func() error) (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, errors.Join(err, shut())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = serve(l) // the error is only that it was shut down
	}()
	return l.Addr().String(), func() {
		_ = shut()
		<-done
	}, nil
}
