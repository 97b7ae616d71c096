//go:build !soak

package quorumdriver_test

// realSchedules is how many schedules are played on real servers.
const realSchedules = 2
