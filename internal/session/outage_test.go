package session

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/memdriver"
)

// An answer that was long on its way would otherwise end the waits of others, whom the
// store has answered since.
func TestOutage_ALateAnswerTakesNoPatienceAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(memdriver.New(), slog.New(slog.DiscardHandler), nil)
		defer s.Close()
		began := s.Now()
		time.Sleep(time.Second)
		slow := s.Now()
		time.Sleep(20 * time.Second)
		fast := s.Now()
		s.hear(fast)
		s.hear(slow)
		if since := s.answeredSince(began); !since.Equal(fast) {
			t.Errorf("answered %v after the beginning, want %v", since.Sub(began), fast.Sub(began))
		}
	})
}
