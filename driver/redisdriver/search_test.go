package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/interrupt"
)

// A search that fails does not close the connections of another search: otherwise that search
// would fail with the error that no sentinel can be reached.
func TestSearch_OneThatFailsDisturbsNoOther(t *testing.T) {
	conns := new(interrupt.Conns)
	errNobody := errors.New("no primary")
	var ask func(ctx context.Context) error
	dial := cutAfterSearch(conns, func(ctx context.Context, _, _ string) (net.Conn, error) { return nil, ask(ctx) })
	sentinel := func(ctx context.Context) net.Conn {
		here, there := net.Pipe()
		t.Cleanup(func() { there.Close() })
		go func() { _, _ = there.Write([]byte("x")) }()
		return conns.Add(ctx, here)
	}
	search := func(f func(ctx context.Context) error) {
		before := ask
		ask = f
		if _, err := dial(t.Context(), "tcp", behindSentinels); !errors.Is(err, errNobody) {
			t.Errorf("search: %v", err)
		}
		ask = before
	}
	search(func(ctx context.Context) error {
		mine := sentinel(ctx)
		search(func(ctx context.Context) error {
			sentinel(ctx)
			return errNobody
		})
		if _, err := mine.Read(make([]byte, 1)); err != nil {
			t.Errorf("after the end of another search: %v", err)
		}
		return errNobody
	})
	if n := conns.Len(); n > 0 {
		t.Errorf("%d connections are left", n)
	}
	ask = func(ctx context.Context) error {
		search(func(ctx context.Context) error {
			sentinel(ctx)
			return errNobody
		})
		return nil
	}
	if _, err := dial(t.Context(), "tcp", behindSentinels); err != nil {
		t.Error(err)
	}
	if n := conns.Len(); n > 0 {
		t.Errorf("%d connections are left of a search that failed while another did not", n)
	}
}

// go-redis runs one search after the other. A search that times out while it waits for
// another one reports the refusal that the other one received.
func TestSearch_WaitingForARefusedOneReportsTheRefusal(t *testing.T) {
	begun := make(chan chan error)
	dial := shareRefusals(func(context.Context, string, string) (net.Conn, error) {
		outcome := make(chan error)
		begun <- outcome
		return nil, <-outcome
	})
	search := func() (end func(error) error) {
		result := make(chan error)
		go func() {
			_, err := dial(t.Context(), "tcp", behindSentinels)
			result <- err
		}()
		outcome := <-begun
		return func(err error) error {
			outcome <- err
			return <-result
		}
	}
	refused := fmt.Errorf("unreachable: %w", errors.Join(errors.New("another sentinel is down"), redis.Nil))

	first, second, third := search(), search(), search()
	if err := first(net.ErrClosed); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a search that failed on its own: %v", err)
	}
	if err := second(refused); !errors.Is(err, errNoPrimary) {
		t.Errorf("a search that was refused: %v", err)
	}
	later := search()
	if err := third(context.DeadlineExceeded); !errors.Is(err, errNoPrimary) {
		t.Errorf("a search at the same time: %v", err)
	}
	if err := later(context.DeadlineExceeded); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a search that began later: %v", err)
	}
	beside, good := search(), search()
	if err := beside(refused); !errors.Is(err, errNoPrimary) {
		t.Errorf("another search that was refused: %v", err)
	}
	if err := good(nil); err != nil {
		t.Errorf("a search that found a primary: %v", err)
	}
}
