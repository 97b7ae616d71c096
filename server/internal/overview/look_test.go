package overview

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// faulty is a store with a defect in whatever is only looked at.
type faulty struct {
	*memdriver.Driver
	well atomic.Bool
}

func (f *faulty) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	f.defect()
	return f.Driver.Inspect(ctx, key)
}

func (f *faulty) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	f.defect()
	return f.Driver.Glance(ctx, key)
}

func (f *faulty) List(ctx context.Context, prefix, cursor string) ([]string, string, error) {
	f.defect()
	return f.Driver.List(ctx, prefix, cursor)
}

func (f *faulty) Check(context.Context) (driver.Report, error) {
	f.defect()
	return driver.Report{}, nil
}

func (f *faulty) defect() {
	if !f.well.Load() {
		panic("a defect of the store's code")
	}
}

// running runs an overview until the test ends.
func running(t *testing.T, o *Overview) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// everything may be read.
type everything struct{}

func (everything) MayRead(string) bool { return true }

func TestOverview_APanicInALookFailsThatLookOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Driver: memdriver.New()}
		defer store.Close()
		if _, err := store.Acquire(t.Context(), driver.Request{Key: "k", ID: "a", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		o := New(store, time.Second, slog.New(slog.NewTextHandler(&log, nil)))
		running(t, o)
		p := o.Open(Query{Limit: 10}, everything{})
		defer p.Close()
		one := o.Follow("k")
		defer one.Close()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if v, err := p.Next(t.Context()); err != nil || !v.Failing {
			t.Errorf("the page does not say that the store fails: %+v, %v", v, err)
		}
		if v := o.Vitals(time.Now()); v.Problem == "" || v.Samples[0].Failures == 0 {
			t.Errorf("health does not tell: %+v", v)
		}
		if n := strings.Count(log.String(), "a look at the store failed"); n != 1 {
			t.Errorf("%d lines of log in half a minute, want one: %s", n, log.String())
		}
		store.well.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if v, err := p.Next(t.Context()); err != nil || v.Failing || v.Locks != 1 {
			t.Errorf("after the defect: %+v, %v", v, err)
		}
	})
}
