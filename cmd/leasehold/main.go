// Leasehold runs commands under locks that work across machines, and looks
// after the locks. See "leasehold --help".
package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/internal/cli"
	"github.com/leasehold-go/leasehold/internal/proc"
)

func main() {
	proc.GuardMain()
	err := cli.Run(os.Args[1:])
	if sig := cli.DiedOf(err); sig != 0 {
		die(sig)
	}
	os.Exit(cli.ExitCode(err))
}

// die ends the process group by the signal that a Ctrl-C gave to the command
// alone. A shell script around us goes on unless it gets the signal too, and
// sees that we died of it.
func die(sig syscall.Signal) {
	signal.Reset(sig)
	_ = syscall.Kill(0, sig) // without effect, there still is the exit code
	time.Sleep(time.Second)  // another thread may be the one to take it
}
