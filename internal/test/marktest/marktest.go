// Package marktest checks how a store takes its mark.
package marktest

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Reservations checks what a store without a mark does for those who want to set it.
// pass lets time pass in the store, and forget has it lose its data.
func Reservations(t *testing.T, m driver.Marker, pass func(time.Duration), forget func()) {
	t.Helper()
	const life = 30 * time.Second
	reserve := func(by string, want bool) {
		t.Helper()
		if got, err := m.Reserve(context.Background(), by, life); got != want || err != nil {
			t.Fatalf("reserved for %s: %v, %v; want %v", by, got, err, want)
		}
	}
	mark := func(name, by string, want string) {
		t.Helper()
		if err := m.Mark(context.Background(), driver.Mark{Name: name}, by); err != nil {
			t.Fatal(err)
		}
		if got, ok, err := m.Marked(context.Background()); got.Name != want || ok != (want != "") || err != nil {
			t.Fatalf("marked by %s: %+v, %v, %v; want %q", by, got, ok, err, want)
		}
	}
	mark("1.early", "x", "")
	reserve("x", true)
	reserve("x", true)
	reserve("y", false)
	mark("1.y", "y", "")
	pass(life)
	mark("1.late", "x", "")
	reserve("y", true)
	mark("1.x", "x", "")
	forget()
	mark("1.forgotten", "y", "")
	reserve("z", true)
	mark("1.z", "z", "1.z")
	reserve("z", false)
	mark("1.again", "", "1.z")
	forget()
	reserve("z", true)
	mark("1.anyhow", "", "1.anyhow")
}
