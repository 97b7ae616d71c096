package redisroom

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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

// TestRenew_AnAnswerThatIsNotOneForEachLeaseIsNone: damage in the answer for one lease does not
// affect the answers for others.
func TestRenew_AnAnswerThatIsNotOneForEachLeaseIsNone(t *testing.T) {
	for reply, want := range map[any]string{
		"7,,9":      "0:7 2:9 left:[1]",
		",,":        "left:[0 1 2]",
		"7,8,9":     "0:7 1:8 2:9 left:[]",
		"7,x,9":     "0:7 1:damaged 2:9 left:[]",
		"7,8":       "0:damaged 1:damaged 2:damaged left:[]",
		"7,8,9,":    "0:damaged 1:damaged 2:damaged left:[]",
		"":          "0:damaged 1:damaged 2:damaged left:[]",
		int64(7):    "0:damaged 1:damaged 2:damaged left:[]",
		any(nil):    "0:damaged 1:damaged 2:damaged left:[]",
		[1]string{}: "0:damaged 1:damaged 2:damaged left:[]",
	} {
		var got strings.Builder
		g := &renewal{which: []int{0, 1, 2}, script: renewUncontended}
		others := g.deliver(Answer{Reply: reply}, func(i int, r driver.Reply, err error) {
			switch {
			case errors.Is(err, errReply):
				fmt.Fprintf(&got, "%d:damaged ", i)
			case err == nil && r.State == driver.Granted && r.Uncontended && r.Holds == 1:
				fmt.Fprintf(&got, "%d:%d ", i, r.Token)
			default:
				t.Errorf("%v: %+v, %v", reply, r, err)
			}
		})
		fmt.Fprintf(&got, "left:%v", others)
		if got.String() != want {
			t.Errorf("%v is read as %s, want %s", reply, got.String(), want)
		}
	}
}

// TestRefusal_OfACommandInAScriptIsPermanent: Redis and Valkey have different errors for a script
// that calls an unknown command.
func TestRefusal_OfACommandInAScriptIsPermanent(t *testing.T) {
	for _, text := range []string{
		"ERR Unknown Redis command called from script script: 0123, on @user_script:3.",
		"ERR Unknown command called from script script: 0123, on @user_script:3.",
	} {
		if err := refusal(ReplyError(text)); !errors.Is(err, driver.ErrPermanent) {
			t.Errorf("%v", err)
		}
	}
}
