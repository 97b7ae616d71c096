//go:build linux || darwin

package cli

import (
	"os"
	"syscall"
	"testing"
)

// A signal during a release ends the process after the release. URG, which the runtime sends
// to itself, and WINCH do not count.
func TestSpare_DropsOneFatalSignalAndTellsOfIt(t *testing.T) {
	for name, row := range map[string]struct {
		signals []os.Signal
		want    syscall.Signal
	}{
		"none":                        {nil, 0},
		"harmless ones":               {[]os.Signal{syscall.SIGURG, syscall.SIGWINCH}, 0},
		"a fatal one":                 {[]os.Signal{syscall.SIGTERM}, syscall.SIGTERM},
		"a fatal one behind harmless": {[]os.Signal{syscall.SIGURG, syscall.SIGWINCH, syscall.SIGINT}, syscall.SIGINT},
	} {
		t.Run(name, func(t *testing.T) {
			s := &signalWatcher{signals: make(chan os.Signal, 64)}
			s.spare()
			for _, sig := range row.signals {
				s.signals <- sig
			}
			if got := s.end(); got != row.want {
				t.Errorf("dropped %v, want %v", got, row.want)
			}
		})
	}
}
