// Package matrix tries every public entry of the library and every route of the service
// under every kind of fault, in virtual time. What it tries, and why something else
// cannot happen, stands in docs/matrix.md, which its tests generate from the sources:
//
//	go test ./internal/test/matrix -args -matrix.update
package matrix
