package check

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
)

func TestCheck_RefusesValuesOutOfBounds(t *testing.T) {
	labels := func(labels map[string]string, most int) error {
		_, err := Labels(labels, most)
		return err
	}
	for _, row := range []struct {
		err  error
		want string // part of the text; empty if the value is right
	}{
		{Key(strings.Repeat("k", 512)), ""},
		{Key("k"), ""},
		{Key("a ~日本\u00a0"), ""},
		{Key(""), "key is empty"},
		{Key(strings.Repeat("k", 513)), "key of 513 bytes is longer than 512"},
		{Key("a\x1f"), `key "a\x1f" has control characters`},
		{Key("a\x7f"), "control characters"},
		{Key("é\u009f"), "control characters"},
		{Key("a\xff"), "not valid UTF-8"},
		{Text("owner", "", 0, 1), ""},
		{ID("09AZaz_.-"), ""},
		{ID(strings.Repeat("i", 64)), ""},
		{ID(strings.Repeat("i", 65)), "lease id"},
		{ID(""), "lease id"},
		{ID(".a"), "lease id"},
		{ID("_a"), "lease id"},
		{ID("a/"), "lease id"},
		{Visit("", 0), ""},
		{Visit("/_.-az09AZ", 10), ""},
		{Visit("/_.-az09AZ", 9), "up to 9"},
		{labels(nil, 0), ""},
		{labels(map[string]string{"a": "b"}, 9), ""},
		{labels(map[string]string{"a": "b"}, 8), "9 bytes of JSON, more than 8"},
		{labels(map[string]string{"a": "\n"}, 99), "label"},
		{Range("n", 1, 1, 1), ""},
		{Range("n", 0, 1, 2), "n 0 is not between 1 and 2"},
		{Range("n", 3, 1, 2), "n 3"},
		{Range("n", math.NaN(), 0, 1), "NaN"},
	} {
		if row.want == "" && row.err != nil {
			t.Errorf("refused: %v", row.err)
		}
		if row.want != "" && (!errors.Is(row.err, driver.ErrInvalid) || !strings.Contains(row.err.Error(), row.want)) {
			t.Errorf("%v, want an invalid value that says %q", row.err, row.want)
		}
	}
	for _, border := range "@[`{/:" { // next to the letters and digits
		if ID("a"+string(border)) == nil {
			t.Errorf("accepts %q in a lease id", border)
		}
	}
}
