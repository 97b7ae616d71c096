package redisdriver

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/leasehold-go/leasehold/internal/interrupt"
)

// A search that fails leaves the connections of one that runs to it: its caller would
// be told that no sentinel can be reached.
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
		t.Errorf("%d connections are left of a search that failed beside one that did not", n)
	}
}
