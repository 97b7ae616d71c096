// Package matrix tries every public entry of the library and every route of the service
// under every kind of fault, in virtual time. docs/internals/reliability.md describes a play, and
// type fate the faults. This prints the table:
//
//	go test -v -run HasARow ./internal/test/matrix -args -matrix.table
package matrix
