// Package httpdriver keeps locks in a service: it is the client of `leasehold serve`
// (package server). The library works over it as over any other store.
//
//	store, err := httpdriver.Open("https://locks.example.com", httpdriver.WithToken(token))
//	…
//	client, err := leasehold.New(store)
//
// One connection, a stream of server-sent events, carries all hints of a client, whatever
// the number of its locks.
package httpdriver
