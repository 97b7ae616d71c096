package redistest

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// pollInterval is the pause between two checks of a state that sends no
// event.
const pollInterval = 10 * time.Millisecond

// Stat is how often a command ran and how much of the server's time it took.
type Stat struct {
	Calls int64
	Usec  float64
}

// CommandStats returns the cost of each command since [Server.ResetStats], by
// its lower-case name, as in "evalsha" or "client|setname". It includes commands called by
// a script, and the few commands of this package itself: info,
// config|resetstat and the commands that set up its connection.
func (s *Server) CommandStats(tb testing.TB) map[string]Stat {
	tb.Helper()
	stats := make(map[string]Stat)
	for name, fields := range s.Info(tb, "commandstats") {
		var stat Stat
		if _, err := fmt.Sscanf(fields, "calls=%d,usec=%f", &stat.Calls, &stat.Usec); err != nil {
			tb.Fatalf("redistest: commandstats of %s: %q: %v", name, fields, err)
		}
		stats[strings.TrimPrefix(name, "cmdstat_")] = stat
	}
	return stats
}

// ResetStats resets the counts of [Server.CommandStats].
func (s *Server) ResetStats(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Client().ConfigResetStat(ctx).Err(); err != nil {
		tb.Fatalf("redistest: reset statistics: %v", err)
	}
}

// Calls runs f and returns how often each command ran on the server during f,
// except for commands that set up connections or count. A script's commands are
// counted in addition to the script.
func (s *Server) Calls(tb testing.TB, f func()) map[string]int64 {
	tb.Helper()
	s.ResetStats(tb)
	f()
	n := make(map[string]int64)
	for name, stat := range s.CommandStats(tb) {
		switch name {
		case "info", "config|resetstat", "hello", "client|setinfo", "client|setname", "ping":
		default:
			n[name] = stat.Calls
		}
	}
	return n
}

// Info returns the fields of one section of INFO.
func (s *Server) Info(tb testing.TB, section string) map[string]string {
	tb.Helper()
	// The test's context has ended when cleanups call this.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	text, err := s.Client().Info(ctx, section).Result()
	if err != nil {
		tb.Fatalf("redistest: info %s: %v", section, err)
	}
	return parseInfo(text)
}

// parseInfo reads "field:value" lines and skips headings and empty lines.
func parseInfo(text string) map[string]string {
	fields := make(map[string]string)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && !strings.HasPrefix(name, "#") {
			fields[name] = value
		}
	}
	return fields
}

// Keys returns the keys of database 0, sorted, without keys that have expired but that
// the server has not removed yet.
func (s *Server) Keys(tb testing.TB) []string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	keys, err := s.Client().Keys(ctx, "*").Result()
	if err != nil {
		tb.Fatalf("redistest: keys: %v", err)
	}
	slices.Sort(keys)
	return keys
}

// await waits until ok returns true, and ends the test if it does not; what is the reason.
func await(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			tb.Fatalf("redistest: %s after %v", what, patience)
		}
	}
}
