package server_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// The machine of the service is suspended for 20 s after the store has answered. Other clocks
// continue, so the remaining time in the answer must not include the 20 s.
func TestRemaining_P2_IsToldWithoutASuspension(t *testing.T) {
	store := answeredBy(memdriver.New(), func(context.Context, string, string, driver.Reply) error { clock.Advance(20 * time.Second); return nil })
	base := listen(t, store)
	type told struct {
		Remaining int64  `json:"remainingMs"`
		Leases    []told `json:"leases"`
	}
	for _, c := range []struct{ name, method, path, body string }{
		{"acquire", "POST", "/v1/locks/k", `{"leaseId":"a","ttlMs":60000}`},
		{"renew", "PUT", "/v1/locks/k/leases/a", `{"ttlMs":60000}`},
		{"renewBatch", "POST", "/v1/leases:renew", `{"leases":[{"key":"k","leaseId":"a","ttlMs":60000}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, text := ask(t, c.method, base+c.path, c.body)
			var got told
			if err := json.Unmarshal([]byte(text), &got); err != nil || status >= 300 {
				t.Fatal(status, text, err)
			}
			for _, l := range append(got.Leases, got)[:1] {
				if l.Remaining <= 0 || l.Remaining > 40_000 {
					t.Errorf("%d ms are left: %s", l.Remaining, text)
				}
			}
		})
	}
}
