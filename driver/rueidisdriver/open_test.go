package rueidisdriver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// At the end of its lifetime rueidis replaces a connection and subscribes again without a
// notice: hints of that moment would be lost.
func TestNew_ConnectionsHaveNoLifetime(t *testing.T) {
	s := redistest.Start(t)
	d := over(t, rueidis.ClientOption{InitAddress: []string{s.Addr()}, ConnLifetime: 100 * time.Millisecond})
	ready := make(chan struct{}, 16)
	sub, err := d.Watch(func(driver.Hint) { ready <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	<-ready
	s.ResetStats(t)
	time.Sleep(500 * time.Millisecond) // it can miss a fault by this, and not invent one
	if n := s.CommandStats(t)["subscribe"].Calls; n != 0 {
		t.Errorf("subscribed %d times again", n)
	}
}

func TestOpen_OptionsCountMoreThanTheURL(t *testing.T) {
	d := open(t, "redis://localhost:1?timeout=3s", rueidisdriver.WithTimeout(4*time.Second))
	if limit := d.CallTimeout(); limit != 4*time.Second {
		t.Errorf("calls end after %v, want 4s", limit)
	}
	if _, err := rueidisdriver.Open("redis://localhost:1", rueidisdriver.WithTimeout(time.Hour)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a timeout of an hour: %v, want it refused", err)
	}
}
