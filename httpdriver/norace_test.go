//go:build !race

package httpdriver_test

// racing tells that everything takes several times as long.
const racing = false
