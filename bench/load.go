package main

import (
	"strconv"
	"syscall"
	"time"
)

// load is the work of a server so far.
type load struct {
	// calls came from clients; usec are their microseconds, including all commands in their
	// scripts.
	calls, usec float64
	cpu         time.Duration
}

// load returns the work for the commands of c on its server. It counts the CPU time for
// all clients.
func (b *bench) load(c contender) (l load) {
	if c.client == etcdClient {
		return b.etcdServer().load()
	}
	stats := b.srv.CommandStats(b)
	for _, name := range c.wire {
		l.calls += float64(stats[name].Calls)
		l.usec += stats[name].Usec
	}
	cpu := b.srv.Info(b, "cpu")
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds := need(strconv.ParseFloat(cpu[name], 64))
		l.cpu += time.Duration(seconds * float64(time.Second))
	}
	return l
}

// loadOf returns the work of the server of c while f runs.
func (b *bench) loadOf(c contender, f func()) load {
	before := b.load(c)
	f()
	l := b.load(c)
	return load{l.calls - before.calls, l.usec - before.usec, l.cpu - before.cpu}
}

// pid returns the process id of the server of c.
func (b *bench) pid(c contender) int {
	if c.client == etcdClient {
		return b.etcdServer().pid
	}
	return b.srv.Pid()
}

// processCPU returns the CPU time of this process.
func processCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
