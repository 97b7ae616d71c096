package roomdriver_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

func TestPoll_FetchesUntilItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		calls := 0
		sub := roomdriver.Poll(func(body string) { heard = append(heard, body) }, time.Second, func(context.Context, string) ([]string, error) {
			switch calls++; calls {
			case 1:
				return []string{"a", "b"}, nil
			case 2:
				return nil, errors.New("busy")
			case 3:
				return []string{"c"}, nil
			}
			return nil, nil
		})
		time.Sleep(4500 * time.Millisecond)
		if len(sub.Address()) < 16 {
			t.Errorf("address %q", sub.Address())
		}
		noError(t, sub.Close())
		time.Sleep(time.Minute)
		if !slices.Equal(heard, []string{"a", "b", "c"}) || calls != 5 {
			t.Errorf("received %q in %d calls", heard, calls)
		}
	})
}

func TestPoll_WithoutAPauseDoesNotEndTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, pause := range []time.Duration{0, -time.Second} {
			fetched := make(chan bool, 10)
			sub := roomdriver.Poll(func(string) {}, pause, func(context.Context, string) ([]string, error) {
				fetched <- true
				return nil, nil
			})
			<-fetched
			<-fetched
			if err := sub.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
