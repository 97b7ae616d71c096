package filedriver

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/room"
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

func TestCodec_KeepsEveryFieldOfARoom(t *testing.T) {
	for range 5 {
		var want room.Record
		fill(t, reflect.ValueOf(&want).Elem(), 0)
		raw := encode("a key", &want)
		key, got, ok := decode(raw)
		if !ok || key != "a key" || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q, %v:\n%+v\nis not\n%+v", key, ok, got, want)
		}
		if !bytes.Equal(raw, encode("a key", &got)) {
			t.Fatal("a second encoding differs")
		}
		for n := range raw {
			if _, _, ok := decode(raw[:n]); ok {
				t.Fatalf("the first %d of %d bytes are taken for a record", n, len(raw))
			}
		}
	}
}

func FuzzCodec(f *testing.F) {
	f.Add(encode("k", &room.Record{Token: 1, Queue: []room.Party{{ID: "x", Labels: map[string]string{"a": "b"}}}}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		key, rec, ok := decode(raw)
		if !ok {
			return
		}
		again, second, ok := decode(encode(key, &rec))
		if !ok || again != key || !reflect.DeepEqual(second, rec) {
			t.Errorf("%+v became %+v", rec, second)
		}
	})
}
