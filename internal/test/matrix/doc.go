// Package matrix tries every public entry of the library and every route of the service
// under every kind of fault, in virtual time. docs/internals/matrix.md describes plays, settings and
// faults. This prints the table:
//
//	go test -v -run HasARow ./internal/test/matrix -args -matrix.table
package matrix
