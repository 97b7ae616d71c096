package leasehold_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/memdriver"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		a, err := leasehold.New(store)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := leasehold.New(store)
		l, err := a.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Mutex("k").TryLock(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
			t.Fatal(err)
		} else {
			t.Log(err)
		}
		time.Sleep(24 * time.Hour)
		t.Log(a.Stats(), l.Remaining())
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err = b.Mutex("k").Lock(ctx)
		t.Log(err)
		cancel()
		got := make(chan *leasehold.Lease)
		go func() {
			l, err := b.Mutex("k").Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		time.Sleep(time.Minute)
		start := time.Now()
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		m := <-got
		t.Log(time.Since(start), m.Token() > l.Token(), m.State(), l.State(), context.Cause(l.Context()))
		time.Sleep(time.Minute)
		t.Log(b.Stats(), m.State())
		if err := m.Release(); err != nil {
			t.Fatal(err)
		}
		a.Close()
		b.Close()
	})
}
