package cli_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestBreak_AsksOnATerminal lets a lease end while break asks.
func TestBreak_AsksOnATerminal(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir()
	id := acquire(t, url)
	if out, code := run(t, "acquire", "--store", url, "--owner", "script", "--ttl", "5m", "other"); code != 0 {
		t.Fatal(out)
	}
	for _, row := range []struct {
		answer, says string
		code         int
	}{
		{"", "no lease was broken", 64},
		{"no", "no lease was broken", 64},
		{"y", "2 leases: 1 broken, 1 had ended, 0 failed", 0},
	} {
		master, slave, screen := openTerminal(t)
		cmd := exec.CommandContext(t.Context(), command(t), "break", "--store", url, "--owner", "script", "--reason", "test")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		screen.await(t, "Break 2 leases? [y/N] ")
		if row.code == 0 {
			if out, code := run(t, "release", "--store", url, "demo", id); code != 0 {
				t.Fatal(out)
			}
		}
		fmt.Fprintln(master, row.answer)
		code := exitCode(t, cmd.Wait())
		screen.await(t, row.says)
		if text := screen.String(); code != row.code || !strings.Contains(text, "HELD BY") {
			t.Errorf("answer %q: code %d, want %d: %s", row.answer, code, row.code, text)
		}
	}
}
