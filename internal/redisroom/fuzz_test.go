package redisroom

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
)

// decode makes a reply of JSON: numbers become integers.
func decode(data []byte) (any, bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil, false
	}
	return integers(v), true
}

func integers(v any) any {
	switch v := v.(type) {
	case json.Number:
		n, _ := v.Int64()
		return n
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	}
	return v
}

// FuzzReplies feeds the parsers replies that no script returns. They return an error or a
// plausible result, and never panic.
func FuzzReplies(f *testing.F) {
	f.Add([]byte(`[3,1700000000000001,1,0,0,1700000000000000]`))
	f.Add([]byte(`[1,0,0,0,30000,1700000000000000,"id",1000,"x",1,17,"c","{\"o\":\"a\",\"s\":1}"]`))
	f.Add([]byte(`[0,0,0,0,0,1,"reason"]`))
	f.Add([]byte(`[17,3,0,1700000000000000,"*",100,"id",5,"w s 0 1 10 10 0 0 7 0 - - {}"]`))
	f.Add([]byte(`[17,3,0,1700000000000000,"a {} 5",100]`))
	f.Add([]byte(`"} 1700000000000001"`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, parse := range []func(any) (driver.Reply, error){parseAcquire, parseRelease, parseRenewal, parseReply} {
			if reply, ok := decode(data); ok {
				r, err := parse(reply)
				if err == nil && (r.State > driver.Left || r.RetryAfter < 0 || r.Clock < 0) {
					t.Errorf("%s gives %+v", data, r)
				}
			}
		}
		if reply, ok := decode(data); ok {
			if snap, err := parseSnapshot(reply); err == nil && snap.Closed < 0 {
				t.Errorf("%s gives %+v", data, snap)
			}
		}
	})
}

// FuzzHints: any client with the right to publish can send any text.
func FuzzHints(f *testing.F) {
	for _, s := range []string{"g id 17 1700000000000000 1000", "a id 0", "b id 3 p:ka reason", "b id 3 p:k", "b id 2 p:", "b id 9 p:k", "b id ", "g id", "x id 0", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, ok := parseHint("p:", text)
		if ok != (h.ID != "") || h.RetryAfter < 0 || h.Clock < 0 || h.ConfirmWindow < 0 || h.Kind == driver.HintResync || (h.Key != "") != (ok && h.Kind == driver.HintBroken) {
			t.Errorf("%q gives %+v, %v", text, h, ok)
		}
	})
}
