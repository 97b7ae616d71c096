package failover_test

import (
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// A lease that was left through one client library is taken over through the
// other, with its token and owner.
func TestAdopt_HR_F13_HR_F14_TokenAndOwnerStayOnRedis(t *testing.T) {
	live.Test(t)
	t.Parallel()
	s := redistest.Start(t)
	client := func(d driver.Driver, err error, name string) *leasehold.Client {
		if err != nil {
			t.Fatal(err)
		}
		c, err := leasehold.New(d, leasehold.WithName(name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first, err := redisdriver.Open(s.URL())
	a := client(first, err, `worker "7" é`)
	second, err := rueidisdriver.Open(s.URL())
	b := client(second, err, "another")

	before, err := a.Mutex("k").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := b.Mutex("k").Adopt(t.Context(), before.ID())
	if err != nil {
		t.Fatal(err)
	}
	if l.Token() == 0 || l.Token() != before.Token() {
		t.Errorf("token %d, want %d", l.Token(), before.Token())
	}
	if got, want := l.Owner(), before.Owner(); got != want {
		t.Errorf("owner %q, want %q", got, want)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}
