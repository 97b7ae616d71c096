package leasehold_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/memdriver"
)

// Timers stand still while the machine is suspended, and one that was set before rings
// late afterwards. A lease that begins then does not rely on it.
func TestSuspension_P2_P3_TimersOfBeforeServeNoLeaseOfAfterwards(t *testing.T) {
	for name, before := range map[string]func(*leasehold.Lease){
		"a lease was held":     func(*leasehold.Lease) {},
		"a lease was released": func(l *leasehold.Lease) { _ = l.Release() },
	} {
		suspended := func(t *testing.T, store *memdriver.Driver) *leasehold.Client {
			c, _ := open(t, store)
			l, err := c.Mutex("a", leasehold.WithTTL(time.Hour)).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			before(l)
			clock.Advance(2 * time.Hour)
			return c
		}
		t.Run("told in time after "+name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c := suspended(t, store)
				l, err := c.Mutex("b", leasehold.WithTTL(time.Second), leasehold.WithoutRenewal()).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				<-l.Context().Done()
				if late := time.Since(began) - time.Second; late > 10*time.Millisecond {
					t.Errorf("Done was closed %v late", late)
				}
			})
		})
		t.Run("renewed in time after "+name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c := suspended(t, store)
				l, err := c.Mutex("b", leasehold.WithTTL(3*time.Second)).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if l.Context().Err() != nil {
					t.Errorf("lost: %v", context.Cause(l.Context()))
				}
			})
		})
	}
}
