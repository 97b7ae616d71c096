// Command run runs the live tests of the packages in a tree, one package at a time.
//
//	go run ./internal/test/live/run [flags of go test]
//
// A test that fails is red at once. A test that only reports missed time bounds (see
// [live.Late]) runs again alone, three times: if all three runs are in time, run reports the
// test as FLAKY and goes on. More than two flaky tests are red.
package main

import (
	"fmt"
	"os"
)

func main() {
	r := &runner{out: os.Stdout, flags: os.Args[1:], test: goTest}
	packages, err := find(".")
	if err == nil {
		err = r.run(packages)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
		os.Exit(1) //nolint:forbidigo // this is a program
	}
}
