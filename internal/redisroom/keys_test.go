package redisroom

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// sides returns the keys of a room.
func sides(prefix, key string) [3]string {
	words := roomCommand(acquireScript.main, prefix, key)
	return [3]string(words[3:6])
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
			for _, name := range sides(prefix, key) {
				if other, taken := names[name]; taken {
					t.Fatalf("%q belongs to %q and to %q", name, other, key)
				}
				names[name] = key
			}
		}
	})
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

func TestFillers_ReachEverySlot(t *testing.T) {
	for at, filler := range fillers() {
		if int(checksum(0, filler[:]))%slots != at {
			t.Fatalf("no filler for slot %d", at)
		}
	}
}
