package redisroom

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// clockClient answers TIME by a clock of its own.
type clockClient struct {
	Client
	read func() time.Time
}

func (c clockClient) Ask(_ context.Context, _ string, words ...string) (any, error) {
	time.Sleep(time.Millisecond)
	t := c.read()
	time.Sleep(time.Millisecond)
	return []any{strconv.FormatInt(t.Unix(), 10), strconv.Itoa(t.Nanosecond() / 1000)}, nil
}

func TestCheck_ComparesTheServersClockWithOneThatNobodySets(t *testing.T) {
	for name, row := range map[string]struct {
		clock    func(since time.Duration) time.Duration // its lead
		severity driver.Severity
		says     string
	}{
		"right":        {func(time.Duration) time.Duration { return 0 }, driver.Good, "steady"},
		"a little off": {func(time.Duration) time.Duration { return -3 * time.Second }, driver.Good, "within 3.001s"},
		"far off":      {func(time.Duration) time.Duration { return time.Hour }, driver.Warning, "off this machine's by 1h0m0s"},
		"stepped": {func(since time.Duration) time.Duration {
			if since > 50*time.Millisecond {
				return -time.Second
			}
			return 0
		}, driver.Warning, "moved by"},
		"too fast": {func(since time.Duration) time.Duration { return since }, driver.Warning, "moved by"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				client := clockClient{read: func() time.Time { return time.Now().Add(row.clock(time.Since(start))) }}
				c := &checkup{store: &Store{main: client, acks: newAcks(nil)}}
				c.clock(t.Context(), "n")
				found := c.About("clock")
				if len(found) != 1 || found[0].Severity != row.severity || !strings.Contains(found[0].What, row.says) {
					t.Errorf("%+v, want %v with %q", found, row.severity, row.says)
				}
			})
		})
	}
}

func TestOlderThan_ComparesNumbersAndNotText(t *testing.T) {
	for version, older := range map[string]bool{
		"6.2.14": true, "7.0.0": false, "7.0.15": false, "7.4": false, "10.0.1": false, "8.1-rc1": false, "": false, "255.255.255": false,
	} {
		if got := olderThan(version, "7.0"); got != older {
			t.Errorf("%q older than 7.0: %t", version, got)
		}
	}
	if !olderThan("7.1.9", "7.2") || olderThan("7.2", "7.2") {
		t.Error("the second number is not compared")
	}
}
