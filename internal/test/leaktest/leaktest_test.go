package leaktest

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestEnd_WaitsForWhatEndsAndFailsForWhatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		until := func(d time.Duration) func() error {
			return func() error {
				if time.Since(begin) < d {
					return errors.New("a goroutine")
				}
				return nil
			}
		}
		if code := end(0, until(20*time.Second), patience); code != 0 {
			t.Errorf("a goroutine that ended after 20 s: exit code %d", code)
		}
		if code := end(0, until(time.Hour), patience); code != 1 {
			t.Errorf("a goroutine that stays: exit code %d", code)
		}
		if code := end(2, until(time.Hour), patience); code != 2 {
			t.Errorf("tests that have failed with 2: exit code %d", code)
		}
	})
}
