package cli

import (
	"strings"
	"testing"
)

func TestScreen_TableFitsTheTerminal(t *testing.T) {
	rows := [][]string{
		{"NAME", "KIND", "HELD BY", "WAITING"},
		{strings.Repeat("tenants/", 20) + "orders/42", "mutex", strings.Repeat("worker-", 9) + "7", "0"},
		{"short", "2 of 3", "me", "11"},
	}
	for width := 45; width < 300; width += 7 {
		var b strings.Builder
		if err := (&screen{w: &b, width: width}).table(rows, []int{0, 2}); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		for _, line := range lines {
			if n := len([]rune(line)); n >= width {
				t.Errorf("%d characters on a terminal of %d: %s", n, width, line)
			}
		}
		if !strings.Contains(lines[1], "42") || !strings.HasPrefix(lines[1], "te") || !strings.HasSuffix(lines[2], "11") {
			t.Errorf("%d: %q", width, lines)
		}
	}
}
