package timing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep_EndsWithTheContext(t *testing.T) {
	for _, row := range []struct {
		limit, took time.Duration
		want        bool
	}{
		{time.Hour, time.Minute, true}, {time.Second, time.Second, false}, {0, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), row.limit)
			defer cancel()
			began := time.Now()
			if got := Sleep(ctx, time.Minute); got != row.want || time.Since(began) != row.took {
				t.Errorf("%v after %v, want %v after %v", got, time.Since(began), row.want, row.took)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // select may choose the timer
		if Sleep(ended, 0) {
			t.Fatal("a context that has ended does not count")
		}
	}
}
