package wire

import (
	"encoding/json"
	"strconv"
)

// AppendJSON appends the JSON of l to b, byte for byte as [json.Marshal] writes
// it. That takes several times as long, and this is what the service says most.
func (l *Lease) AppendJSON(b []byte) ([]byte, error) {
	b = append(b, '{')
	if l.Key != "" {
		b = append(appendString(b, `"key":`, l.Key), ',')
	}
	b = appendString(b, `"leaseId":`, l.LeaseID)
	b = appendString(b, `,"state":`, l.State)
	b = appendTrue(b, `,"again":true`, l.Again)
	b = appendTrue(b, `,"repeated":true`, l.Repeated)
	b = appendInt(b, `,"token":`, l.Token)
	b = appendInt(b, `,"holds":`, int64(l.Holds))
	b = appendInt(b, `,"ttlMs":`, int64(l.TTL))
	b = appendInt(b, `,"remainingMs":`, int64(l.Remaining))
	b = appendInt(b, `,"position":`, int64(l.Position))
	b = appendInt(b, `,"freeInMs":`, int64(l.FreeIn))
	b = appendInt(b, `,"ticketMs":`, int64(l.Ticket))
	b = appendInt(b, `,"retryAfterMs":`, int64(l.RetryAfter))
	b = appendInt(b, `,"clockUs":`, l.Clock)
	if len(l.Holders) > 0 {
		holders, err := json.Marshal(l.Holders)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"holders":`...), holders...)
	}
	b = appendTrue(b, `,"broken":true`, l.Broken)
	if l.Reason != "" {
		b = appendString(b, `,"reason":`, l.Reason)
	}
	return append(b, '}'), nil
}

// appendInt appends a number that is absent when it is 0.
func appendInt(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(b, name...), n, 10)
}

func appendTrue(b []byte, field string, is bool) []byte {
	if !is {
		return b
	}
	return append(b, field...)
}

func appendString(b []byte, name, text string) []byte {
	b = append(b, name...)
	for i := range len(text) {
		if !verbatim[text[i]] {
			quoted, _ := json.Marshal(text) // every string can be encoded
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}

// verbatim are the bytes that stand in JSON as they are: printed ASCII without
// what is escaped, be it only for the sake of HTML.
var verbatim = func() (is [256]bool) {
	for c := ' '; c <= '~'; c++ {
		is[c] = true
	}
	for _, c := range `"\<>&` {
		is[c] = false
	}
	return is
}()
