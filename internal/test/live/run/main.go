// Command run runs the live tests of the packages in a tree, one package at a time. The flag
// -run chooses some by the name of the test.
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
	suites, err := find(".")
	if err == nil {
		var flags []string
		if suites, flags, err = choose(suites, os.Args[1:]); err == nil {
			err = (&runner{out: os.Stdout, flags: flags, test: goTest}).run(suites)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
		os.Exit(1) //nolint:forbidigo // this is a program
	}
}
