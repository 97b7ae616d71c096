//go:build !linux

package main

// place leaves it to the system where clients and server run.
func place([]int, int, int) (restore func(), err error) { return func() {}, nil }
