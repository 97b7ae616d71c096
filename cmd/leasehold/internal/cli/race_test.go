//go:build race

package cli_test

// racing tells that each process of the command costs three times as much.
const racing = true
