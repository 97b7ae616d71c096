package redisroom

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/driver"
)

// counterSide is the index of the counter, which several rooms share.
const counterSide = 3

// sides returns the keys of a room on a cluster, and that of an id that was released there.
func sides(prefix, key string) []string {
	s := New(nil, nil, Options{Prefix: prefix})
	s.bySlot.Store(true)
	words := s.releaseCommand(releaseScript.main(), &driver.Ref{Key: key, ID: "id", SingleUseID: true, RejectIDFor: time.Minute}).take()
	return words[3:8]
}

// tricky draws strings in which hash tags begin, end, and are empty.
func tricky(t *rapid.T, label string, least int) string {
	pieces := []string{"{", "}", "{}", "{a}", "a", "b", ":", "é", "日本", " ", "orders/42", "\\", "*"}
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), least, 12).Draw(t, label), "")
}

// R4
func TestKeys_R4_LieInOneSlotUnderThePrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix, key := tricky(t, "prefix", 0), tricky(t, "key", 1)
		k := sides(prefix, key)
		if k[0] != prefix+key {
			t.Fatalf("holder key %q, want prefix and key as they are", k[0])
		}
		for _, name := range k[1:] {
			if Slot(name) != Slot(k[0]) {
				t.Fatalf("%q is in slot %d, %q in slot %d", name, Slot(name), k[0], Slot(k[0]))
			}
			if !strings.HasPrefix(name, prefix) {
				t.Fatalf("%q does not begin with the prefix %q", name, prefix)
			}
		}
	})
}

func TestKeys_R4_NeverMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := tricky(t, "prefix", 0)
		names := make(map[string]string)
		for _, key := range rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) string { return tricky(t, "key", 1) }), 2, 20, rapid.ID).Draw(t, "keys") {
			for _, name := range slices.Delete(sides(prefix, key), counterSide, counterSide+1) {
				if other, taken := names[name]; taken {
					t.Fatalf("%q belongs to %q and to %q", name, other, key)
				}
				names[name] = key
			}
		}
	})
}

func TestKeys_OneCounterForEachSlot(t *testing.T) {
	for slot, filler := range fillers() {
		h := string(filler[:])
		c := slotCounter("p:", h)
		if other := slotCounter("p:", "another {"+h+"}"); Slot(h) != slot || Slot(c) != slot || other != c {
			t.Fatalf("counters %q and %q of slot %d", c, other, slot)
		}
	}
	if own := "p:" + counterKey; slotCounter("p:", own) != own {
		t.Errorf("counter %q, want %q in its own slot", slotCounter("p:", own), own)
	}
}

func TestKeys_OfReleasedIdsDiffer(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n /= 30
	}
	names := make(map[string]string)
	for i := range n {
		for _, id := range []string{fmt.Sprint(i), fmt.Sprintf("job-%d.%d", i%100, i/100), fmt.Sprintf("%026d", i)} {
			name := string(appendSpent(nil, []byte("key"), id))
			if other, taken := names[name]; taken && other != id {
				t.Fatalf("%q is that of %q and of %q", name, other, id)
			}
			names[name] = id
		}
	}
}

func TestSlot_IsThatOfTheSpecification(t *testing.T) {
	// The specification's own examples, and CLUSTER KEYSLOT of a real server.
	for key, want := range map[string]int{
		"123456789": 12739, "foo": 12182, "{user1000}.following": Slot("user1000"), "foo{}{bar}": Slot("foo{}{bar}"),
		"foo{{bar}}zap": Slot("{bar"), "foo{bar}{zap}": Slot("bar"), "": 0,
	} {
		if got := Slot(key); got != want {
			t.Errorf("slot of %q is %d, want %d", key, got, want)
		}
	}
}
