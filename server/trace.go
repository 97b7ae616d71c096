package server

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strings"
)

// traceOf is the id of the trace that a request belongs to, by its traceparent
// header, or else a new one.
func traceOf(h http.Header) string {
	if id, ok := parseTraceparent(header(h, "Traceparent")); ok {
		return id
	}
	var id [16]byte
	var text [2 * len(id)]byte
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64()) // to be told apart, not to be secret
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	hex.Encode(text[:], id[:])
	return string(text[:])
}

// header is the first value of a field. Its name is as the header has it, which
// [http.Header.Get] would see to each time.
func header(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// parseTraceparent takes the trace id out of the header, as W3C Trace Context
// has it. Versions to come may have more behind what is known.
func parseTraceparent(text string) (id string, ok bool) {
	if text == "" {
		return "", false
	}
	parts := strings.SplitN(text, "-", 5)
	if len(parts) < 4 || parts[0] == "ff" || len(parts) > 4 && parts[0] == "00" {
		return "", false
	}
	for i, size := range []int{2, 32, 16, 2} {
		if len(parts[i]) != size || strings.Trim(parts[i], "0123456789abcdef") != "" {
			return "", false
		}
	}
	if strings.Trim(parts[1], "0") == "" || strings.Trim(parts[2], "0") == "" {
		return "", false
	}
	return parts[1], true
}
