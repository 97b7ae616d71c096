//go:build small

package stores

var optional []kind
