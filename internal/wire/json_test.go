package wire_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/wire"
)

// strictly is what encoding/json says of a body.
func strictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.InputOffset() != int64(len(bytes.TrimRight(text, " \t\r\n"))) {
		return json.Unmarshal(text, into) // why it is not one value
	}
	return nil
}

// agree compares what was read with what encoding/json reads.
func agree[T any](t *testing.T, text []byte, got T, ok bool) {
	t.Helper()
	var want T
	err := strictly(text, &want)
	switch {
	case ok && err != nil:
		t.Errorf("%q was read, but: %v", text, err)
	case ok && !reflect.DeepEqual(got, want):
		t.Errorf("%q was read as %+v, not as %+v", text, got, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`{}`, ` { } `, `{"leaseId":"a","ttlMs":30000}`, `{"leaseId":"a" , "mode" : "shared","policy":"barging","limit":3,"permits":2}`,
		`{"ttlMs":1,"waitMs":2,"ticketMs":3,"owner":"web-1","reentrant":true,"since":"2026-01-02T03:04:05.6Z","minToken":4}`,
		`{"lockDelayMs":5,"confirmMs":6,"notify":"x","resize":false,"mode":"new"}`, `{"labels":{"a":"b"}}`, `{"ttlMs":null}`, `{"LeaseID":"a"}`,
		`{"key":"k","leaseId":"a","ticketMs":0}`, `{"limit":2147483648}`, `{"minToken":9223372036854775808}`, `{"minToken":007}`, `{"limit":-1}`,
		`{"ttlMs":1e3}`, `{"ttlMs":1.0}`, `{"owner":"é\n"}`, `{"owner":"é"}`, `{"leaseId":"a",}`, `{"leaseId":"a"}}`, `{"resize":true1}`, `{,}`, `{"since":"today"}`,
		`{"leaseId":"a","leaseId":"b"}`, `{"ttlMs":}`, `{"reentrant":"true"}`, `[]`, ``, `{`, `{"`, `{"a`, `{"a"`, `{"a":`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, ok := wire.ParseAcquire(text)
		agree(t, text, a, ok)
		r, ok := wire.ParseRenew(text)
		agree(t, text, r, ok)
	})
}

// TestParse_ReadsWhatTheLibraryAsks: it is not worth anything if it leaves
// to encoding/json what comes all the time.
func TestParse_ReadsWhatTheLibraryAsks(t *testing.T) {
	ttl, ticket := wire.Millis(30000), wire.Millis(0)
	asked := wire.Acquire{
		LeaseID: "a1", Mode: "exclusive", Policy: "fifo", Limit: 3, Permits: 1, TTL: &ttl, Ticket: &ticket, Owner: "web-1/77", Reentrant: true,
		Since: time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC), MinToken: 1 << 52, LockDelay: 1, Confirm: 3000, Notify: "/abc/7", Resize: true, Wait: 7,
	}
	text, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := wire.ParseAcquire(text); !ok || !reflect.DeepEqual(got, asked) {
		t.Errorf("%s is read as %+v, %v", text, got, ok)
	}
	renewed := wire.Renew{Key: "k", LeaseID: "a1", TTL: &ttl, Ticket: &ticket, Notify: "/abc/7", MinToken: 7}
	if text, err = json.Marshal(renewed); err != nil {
		t.Fatal(err)
	}
	if got, ok := wire.ParseRenew(text); !ok || !reflect.DeepEqual(got, renewed) {
		t.Errorf("%s is read as %+v, %v", text, got, ok)
	}
}

func FuzzAppendJSON(f *testing.F) {
	f.Add("orders/42", "a1", "held", true, int64(7), int64(30000), "")
	f.Add("", "", "", false, int64(0), int64(-1), "<stuck> & \"lost\"\u2028\xff\x7f")
	f.Add("é", "\\", "\x00", false, int64(-1<<63), int64(1<<62), "x")
	f.Fuzz(func(t *testing.T, key, id, state string, is bool, n, m int64, reason string) {
		l := wire.Lease{
			Key: key, LeaseID: id, State: state, Again: is, Repeated: !is, Token: n, Holds: int(m), TTL: wire.Millis(m),
			Remaining: wire.Millis(n), Position: int(n), FreeIn: wire.Millis(m), Ticket: wire.Millis(n), RetryAfter: wire.Millis(m),
			Clock: n, Broken: is, Reason: reason,
		}
		if is {
			l.Holders = []wire.Holder{{LeaseID: id, Owner: reason, Labels: map[string]string{key: state}}}
		}
		want, err := json.Marshal(&l)
		if err != nil {
			t.Fatal(err) // every lease can be encoded
		}
		got, err := l.AppendJSON([]byte("before"))
		if err != nil || string(got) != "before"+string(want) {
			t.Errorf("%s, %v\nwant before%s", got, err, want)
		}
	})
}

// TestAppendJSON_WritesEveryField: a field that is new has to be written, too.
func TestAppendJSON_WritesEveryField(t *testing.T) {
	var l wire.Lease
	v := reflect.ValueOf(&l).Elem()
	for i := range v.NumField() {
		switch field := v.Field(i); field.Kind() {
		case reflect.String:
			field.SetString("x")
		case reflect.Int, reflect.Int64:
			field.SetInt(int64(i + 1))
		case reflect.Bool:
			field.SetBool(true)
		default:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		}
	}
	want, err := json.Marshal(&l)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := l.AppendJSON(nil); err != nil || string(got) != string(want) {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
}
