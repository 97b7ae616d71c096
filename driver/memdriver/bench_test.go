package memdriver_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

func BenchmarkPair(b *testing.B) {
	for _, waiters := range []int{0, 10, 1000} {
		b.Run(fmt.Sprint(waiters, " waiting"), func(b *testing.B) {
			s := memdriver.New()
			defer s.Close()
			ctx := b.Context()
			if waiters > 0 {
				_, _ = s.Acquire(ctx, driver.Request{Key: "k", ID: "holder", TTL: time.Hour})
			}
			for i := range waiters {
				_, _ = s.Acquire(ctx, driver.Request{Key: "k", ID: fmt.Sprint("w", i), TTL: time.Hour, TicketTTL: time.Hour})
			}
			req := driver.Request{Key: "k", ID: "a", Owner: "worker-7", TTL: time.Minute, TicketTTL: time.Minute, ConfirmWindow: time.Second}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Acquire(ctx, req); err != nil {
					b.Fatal(err)
				}
				if _, err := s.Release(ctx, driver.Ref{Key: "k", ID: "a"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
