//go:build race

package locktest_test

// racing tells that everything takes several times as long.
const racing = true
