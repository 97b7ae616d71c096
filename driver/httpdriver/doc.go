// Package httpdriver keeps locks in a service: it is the client of `leasehold serve`
// (package server). The library uses it like any other store.
//
//	store, err := httpdriver.Open("https://locks.example.com", httpdriver.WithToken(token))
//	…
//	client, err := leasehold.New(store)
//
// One connection, a stream of server-sent events, carries all hints of a client, for any
// number of locks.
package httpdriver
