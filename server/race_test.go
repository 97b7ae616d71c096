//go:build race

package server_test

// racing tells that memory is not what it is otherwise.
const racing = true
