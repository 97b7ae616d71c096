package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// pin confines all threads of a process to some CPUs, so that it is not chance
// that says whether client and server share one: that alone is a factor of
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

// place puts the clients and the server on one CPU each, the same or another.
// What it returns lets them run anywhere again.
func place(srv *server, client, other int) (restore func(), err error) {
	all := make([]int, runtime.NumCPU())
	for i := range all {
		all[i] = i
	}
	self, theirs := os.Getpid(), srv.cmd.Process.Pid
	restore = func() {
		_ = pin(self, all...)
		_ = pin(theirs, all...)
	}
	if err := pin(self, client); err != nil {
		return restore, err
	}
	return restore, pin(theirs, min(other, len(all)-1))
}
