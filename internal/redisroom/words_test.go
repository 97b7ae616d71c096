package redisroom

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// hoarder is a client that keeps the words of every call that fails, like a client that still has
// to write them.
type hoarder struct {
	Client
	// answer is the outcome of the n'th call, counted from 0.
	answer func(n int) (any, error)
	calls  int
	kept   [][]string
	were   [][]string // copies of the kept words at that time
}

func (h *hoarder) Do(_ context.Context, cmd []string) (any, error) {
	reply, err := h.answer(h.calls)
	h.calls++
	if err != nil {
		h.kept, h.were = append(h.kept, cmd), append(h.were, slices.Clone(cmd))
	}
	return reply, err
}

func (h *hoarder) Run(ctx context.Context, cmds [][]string, _ Acks, each func(int, Answer)) {
	for i, cmd := range cmds {
		reply, err := h.Do(ctx, cmd)
		each(i, Answer{Reply: reply, Err: err, Acked: 1})
	}
}

func (h *hoarder) Cluster() bool   { return false }
func (h *hoarder) Changes() uint64 { return 0 }
func (h *hoarder) Connect(int)     {}
func (h *hoarder) Close() error    { return nil }

// TestCommand_WordsOfACallThatFailedAreNotUsedAgain: a client library may write them after the
// call has returned, and would then write another request.
func TestCommand_WordsOfACallThatFailedAreNotUsedAgain(t *testing.T) {
	timeout := func(int) (any, error) { return nil, context.DeadlineExceeded }
	for _, row := range []struct {
		name   string
		acks   *Acks
		answer func(n int) (any, error)
	}{
		{"a timeout", nil, timeout},
		{"a timeout, with replicas", &Acks{Replicas: 1, Timeout: time.Millisecond}, timeout},
		// The cause of a context may be any error, one of the server's too.
		{"another call with the same words is answered", nil, func(n int) (any, error) {
			if n%2 == 0 {
				return nil, ReplyError("LHMORE")
			}
			return int64(1), nil
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := &hoarder{answer: row.answer}
			s := New(h, h, Options{Prefix: "p:", Timeout: time.Second, Acks: row.acks})
			defer s.Close()
			for range 100 {
				_, _ = s.Acquire(t.Context(), simpleRequest("k", "a"))
				_, _ = s.Release(t.Context(), driver.Ref{Key: "k", ID: "b", Uncontended: true})
				_, _ = s.Release(t.Context(), driver.Ref{Key: "k", ID: "c"})
				_, _ = s.Inspect(t.Context(), "k")
				_, _ = s.Break(t.Context(), "k", "d", "why")
				_, _ = s.Reserve(t.Context(), "e", time.Second)
			}
			if len(h.kept) < 100 {
				t.Fatalf("%d calls have failed, want 100 at least", len(h.kept))
			}
			for i, words := range h.kept {
				if !slices.Equal(words, h.were[i]) {
					t.Fatalf("the words %q of a call that failed have become %q", h.were[i], words)
				}
			}
		})
	}
}
