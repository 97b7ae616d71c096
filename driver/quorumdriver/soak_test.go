//go:build soak

package quorumdriver_test

import "testing"

func TestQuorum_Soak_RandomSchedules(t *testing.T) {
	for violations := range schedules(t, 100_000) {
		if violations != "" {
			t.Fatal(violations)
		}
	}
}
