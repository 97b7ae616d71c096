package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// pin confines all threads of a process to some CPUs. Otherwise chance decides whether
// client and server share a CPU, and that alone is a factor of
// three in a round trip.
func pin(pid int, cpus ...int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("pin to CPUs %v: %w", cpus, err)
		}
	}
	return nil
}

// place puts the clients and the servers on one CPU each, the same or different.
// restore allows all CPUs again.
func place(servers []int, client, other int) (restore func(), err error) {
	all := make([]int, runtime.NumCPU())
	for i := range all {
		all[i] = i
	}
	self := os.Getpid()
	restore = func() {
		for _, pid := range append(servers, self) {
			_ = pin(pid, all...)
		}
	}
	for _, pid := range servers {
		if err := pin(pid, min(other, len(all)-1)); err != nil {
			return restore, err
		}
	}
	return restore, pin(self, client)
}
