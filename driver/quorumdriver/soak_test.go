//go:build soak

package quorumdriver_test

import "testing"

// realSchedules is how many schedules are played on real servers.
const realSchedules = 60

func TestQuorum_Soak_RandomSchedules(t *testing.T) {
	for violations := range schedules(t, 100_000) {
		if violations != "" {
			t.Fatal(violations)
		}
	}
}

func TestQuorum_Soak_RealServersThatSuffer(t *testing.T) {
	TestQuorum_KeepsItsPromisesOnRealServersThatSuffer(t)
}
