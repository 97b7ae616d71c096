package postgrestest

import (
	"os"
	"path/filepath"
	"testing"
)

// A server that is named is the one that starts, with the programs beside it.
func TestStart_TakesTheServerThatIsNamed(t *testing.T) {
	bin, dir := binaries(t), t.TempDir()
	named := filepath.Join(dir, "postgres")
	if err := os.WriteFile(named, []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("LEASEHOLD_POSTGRES_SERVER", named)
	if got := binaries(t); got != dir {
		t.Errorf("the programs of %s are taken, not those of %s", got, dir)
	}
	t.Setenv("LEASEHOLD_POSTGRES_SERVER", filepath.Join(bin, "postgres"))
	if got := Start(t).bin; got != bin {
		t.Errorf("a server of %s has started", got)
	}
}
