package timing

import (
	"testing"
	"time"
)

func TestRetryIn_GrowsAndLeavesTimeForTwoMoreTries(t *testing.T) {
	for _, address := range []string{"", "somewhere"} {
		var spent, last time.Duration
		for failures := range 1000 {
			d := RetryIn(address, failures)
			if d < last*8/10 || d > TicketLife(address)/6 {
				t.Fatalf("address %q: %v after %d failures and %v", address, d, failures, last)
			}
			if last = d; failures < 10 {
				spent += d
			}
		}
		if address != "" && spent < 12*time.Second {
			t.Errorf("ten questions in %v", spent)
		}
	}
}
