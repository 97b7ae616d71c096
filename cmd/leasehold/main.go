// Leasehold runs commands under locks that work across machines, and looks
// after the locks. See "leasehold --help".
package main

import (
	"os"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/cli"
)

func main() {
	err := cli.Run(os.Args[1:])
	cli.Die(err)
	os.Exit(cli.ExitCode(err))
}
