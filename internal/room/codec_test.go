package room

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// fill gives every field below v a value that is not zero.
func fill(t *testing.T, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Repeat("ü", 1+rand.IntN(100)))
	case reflect.Int, reflect.Int64:
		v.SetInt(1 + rand.Int64N(1<<53))
	case reflect.Uint8:
		v.SetUint(1 + rand.Uint64N(255))
	case reflect.Uint64:
		v.SetUint(rand.Uint64())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), depth+1)
		}
		if p, ok := reflect.TypeAssert[*Party](v.Addr()); ok {
			p.Mode, p.Policy = driver.Shared, driver.ReadersFirst // the greatest value
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range 3 {
			fill(t, v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 3 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(t, key, depth+1)
			fill(t, value, depth+1)
			v.SetMapIndex(key, value)
		}
	default:
		t.Fatalf("a field of kind %v: teach it to the codec and to this test", v.Kind())
	}
}

// filled returns a record without a zero field.
func filled(t *testing.T) (r Record) {
	fill(t, reflect.ValueOf(&r).Elem(), 0)
	r.Store = Store{} // is not encoded
	r.Inside[1].Token = r.Token
	return r
}

func TestCodec_KeepsEveryFieldOfARoom(t *testing.T) {
	for range 5 {
		want := filled(t)
		raw := Append(nil, &want, 17)
		got, err := Decode(raw)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v:\n%+v\nis not\n%+v", err, got, want)
		}
		if end, err := End(raw); end != 17 || err != nil {
			t.Fatalf("forgotten at %d, %v", end, err)
		}
		if !bytes.Equal(raw, Append(nil, &got, 17)) {
			t.Fatal("a second encoding differs")
		}
	}
}

func TestCodec_ARecordThatWasCutIsNoRecord(t *testing.T) {
	r := filled(t)
	raw := Append(nil, &r, r.Until())
	for n := range raw {
		if _, err := Decode(raw[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are taken for a record", n, len(raw))
		}
	}
	if _, err := Decode(append(raw, 0)); err == nil {
		t.Fatal("a record with something behind it is taken for a record")
	}
}

func TestCodec_AnUnknownVersionIsNamed(t *testing.T) {
	raw := Append(nil, &Record{Token: 1}, 0)
	raw[0] = 7
	for _, cut := range [][]byte{raw, raw[:1]} {
		if _, err := Decode(cut); err == nil || !strings.Contains(err.Error(), "version 7") {
			t.Errorf("%v: want an error that names version 7", err)
		}
	}
}

// TestCodec_TheFormatStaysAsItIs compares the encoding with bytes that other programs of this
// version have written. A change of the bytes needs a new version.
func TestCodec_TheFormatStaysAsItIs(t *testing.T) {
	r := Record{
		Token: 1_000_001, Limit: 3, Inside: []Party{{ID: "a", Owner: "o", Before: 1000, Weight: 1, Expiry: 2000, Token: 1_000_001, Confirmed: true}},
		Marks: map[string]Mark{"+b": {Until: 3000}}, Spent: Spent{5: 9},
	}
	const want = "01000000000000000700000000000f4241" + "000600000001016101" + "6f000000000002d00f00000000" + "00a01f00000200000001022b62f02e000105000000000000" + "0012"
	if got := fmt.Sprintf("%x", Append(nil, &r, 7)); got != want {
		t.Errorf("%s\nis not\n%s", got, want)
	}
}

func TestRecord_EndsAfterItsTokenByTheMemory(t *testing.T) {
	for _, row := range []struct {
		r      Record
		memory int64
		want   int64
	}{
		{Record{}, 5, 0},
		{Record{Closed: 9}, 5, 9},
		{Record{Token: 4000, Closed: 2}, 0, 5},
		{Record{Token: 4999, Closed: 2}, 10, 15},
		{Record{Token: 4000, Inside: []Party{{Expiry: 100, Delay: 7}}}, 10, 107},
	} {
		if got := row.r.End(row.memory); got != row.want {
			t.Errorf("%+v with a memory of %d ends at %d, want %d", row.r, row.memory, got, row.want)
		}
	}
}

// FuzzCodec: data that is decoded without an error is a valid record for the rule.
func FuzzCodec(f *testing.F) {
	f.Add(Append(nil, &Record{Token: 1, Queue: []Party{{ID: "x", Labels: map[string]string{"a": "b"}}}}, 5))
	f.Add(Append(nil, &Record{Inside: []Party{{ID: "x"}}, Marks: map[string]Mark{"!a": {Until: 1}}, Spent: Spent{1: 3}}, Never))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := Decode(raw)
		if err != nil {
			return
		}
		end, _ := End(raw)
		if again, err := Decode(Append(nil, &r, end)); err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}
		now := r.Token/2 + 1
		Look(&r, "k", now)
		_, _, _ = Acquire(&r, driver.Request{Key: "k", ID: "x", TTL: time.Second, TicketTTL: time.Second, Mode: driver.Shared, Limit: r.Limit}, now)
		Renew(&r, driver.Ref{Key: "k", ID: "x", TTL: time.Second}, now)
		Release(&r, driver.Ref{Key: "k", ID: "x", RejectIDFor: time.Second, SingleUseID: true}, now)
		Break(&r, "k", "y", "why", now)
	})
}
