package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/server"
)

// Healthy leases of a batch must not end because the store is asked about leases that are gone.
func TestRenew_ABatchWithGoneLeasesTakesOneRequestOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases = 40
		var asked, now, most atomic.Int64
		store := before(memdriver.New(), func(_ context.Context, m *message) error {
			if m.Verb == intercept.Acquire {
				asked.Add(1)
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
			}
			time.Sleep(time.Second)
			return nil
		})
		_, base := serve(t, store, server.WithAuditLog(new(safe)), server.WithStoreTimeout(time.Minute))
		var body []string
		for i := range leases {
			body = append(body, fmt.Sprintf(`{"key":"k","leaseId":"l%d"}`, i))
		}
		began := time.Now()
		text := must(t, 200, "POST", base+"/v1/leases:renew", `{"leases":[`+strings.Join(body, ",")+`]}`)
		if n, took := strings.Count(text, `"state":"gone"`), time.Since(began); n != leases || took != time.Second {
			t.Errorf("%d of %d are gone, after %v: %s", n, leases, took, text)
		}
		time.Sleep(time.Minute)
		if asked.Load() != leases || most.Load() > 8 {
			t.Errorf("the store was asked about %d leases, %d at a time", asked.Load(), most.Load())
		}
	})
}

// The machine of the service is suspended for 20 s after the store has answered. Other clocks
// continue, so the remaining time in the answer must not include the 20 s.
func TestRemaining_P2_IsToldWithoutASuspension(t *testing.T) {
	store := after(memdriver.New(), func(*message) error {
		clock.Advance(20 * time.Second)
		return nil
	})
	base := listen(t, store)
	type told struct {
		Remaining int64  `json:"remainingMs"`
		Leases    []told `json:"leases"`
	}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/locks/k", `{"leaseId":"a","ttlMs":60000}`, 201},
		{"PUT", "/v1/locks/k/leases/a", `{"ttlMs":60000}`, 200},
		{"POST", "/v1/leases:renew", `{"leases":[{"key":"k","leaseId":"a","ttlMs":60000}]}`, 200},
	} {
		var got told
		answer(t, c.method, base+c.path, c.body, c.status, &got)
		for _, l := range append(got.Leases, got)[:1] {
			if l.Remaining <= 0 || l.Remaining > 40_000 {
				t.Errorf("%s %s: %d ms are left", c.method, c.path, l.Remaining)
			}
		}
	}
}
