//go:build !unix

package locktest_test

// act is never called: plays need processes that can be stopped, and that share a clock.
func act(string, string) int { return 2 }
