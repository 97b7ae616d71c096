// Package server is the HTTP service of leasehold: the locks of one store for
// programs in any language.
//
//	service, err := server.New(redisStore)
//	…
//	defer service.Close()
//	http.ListenAndServe("127.0.0.1:8080", service)
//
// It is a thin translation. All truth is in the store, so that several replicas
// on one store are one service, and a restart loses nothing but connections.
// The lease id that a client chooses is its idempotency key: a request that is
// repeated has the effect and the answer of one. Package httpdriver is the
// client in Go; docs/http.md describes the interface.
package server
