package rueidisdriver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/respproxy"
)

// cancelNextTo cancels an Inspect that the server does not answer, while request waits on the same
// connection. It returns the error of request.
func cancelNextTo(t *testing.T, request func(ctx context.Context, d *rueidisdriver.Driver) error) error {
	t.Helper()
	proxy := respproxy.Start(t, redistest.Start(t).Addr())
	d := over(t, rueidis.ClientOption{InitAddress: []string{proxy.Addr()}, PipelineMultiplex: -1})
	if _, err := d.Inspect(t.Context(), "other"); err != nil { // connects, and loads the script
		t.Fatal(err)
	}
	held := proxy.Add(respproxy.Hold, 1, respproxy.Mentions("given up"))
	ctx, giveUp := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	go func() {
		_, err := d.Inspect(ctx, "given up")
		gaveUp <- err
	}()
	held.WaitFired(t, 1)
	answered := make(chan error, 1)
	go func() { answered <- request(t.Context(), d) }()
	time.Sleep(50 * time.Millisecond) // it can miss a fault by this, and not invent one
	giveUp()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled inspect: %v", err)
	}
	return <-answered
}

func TestCalls_AreAnsweredBesideALookThatIsGivenUp(t *testing.T) {
	for name, call := range map[string]func(context.Context, *rueidisdriver.Driver) error{
		"inspect": func(ctx context.Context, d *rueidisdriver.Driver) error {
			_, err := d.Inspect(ctx, "other")
			return err
		},
		"list": func(ctx context.Context, d *rueidisdriver.Driver) error {
			_, _, err := d.List(ctx, "", "")
			return err
		},
		"acquire": func(ctx context.Context, d *rueidisdriver.Driver) error {
			_, err := d.Acquire(ctx, driver.Request{Key: "other", ID: "a", TTL: time.Minute})
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				return err
			}
			return nil // also after a lost connection: the caller asks again at once, as it does not after a timeout
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := cancelNextTo(t, call); err != nil {
				t.Error(err)
			}
		})
	}
}
