package overview

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// lastMoment is a context that ends when somebody begins to wait for its end. Something
// happens just before.
type lastMoment struct {
	context.Context
	end func()
}

func (c *lastMoment) Done() <-chan struct{} {
	c.end()
	return c.Context.Done()
}

func endingAfter(t *testing.T, happens func()) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return &lastMoment{ctx, sync.OnceFunc(func() {
		happens()
		cancel()
	})}
}

// rounds are so many that a choice by lot is noticed.
const rounds = 64

func TestPage_ShowsAViewThatIsReadyWhenTheTimeIsUp(t *testing.T) {
	store := memdriver.New()
	defer store.Close()
	for range rounds {
		o := New(store, time.Second, slog.New(slog.DiscardHandler))
		o.named([]string{"k"})
		p := o.Open(Query{Limit: 10}, everything{})
		if v := p.Whole(endingAfter(t, o.refresh)); v.Locks != 1 || len(v.Rows) != 1 {
			t.Fatalf("%+v, want the lock", v)
		}
		p.Close()
	}
}

func TestFollower_ShowsALockThatWasLookedAtWhenTheTimeIsUp(t *testing.T) {
	store := memdriver.New()
	defer store.Close()
	for range rounds {
		o := New(store, time.Second, slog.New(slog.DiscardHandler))
		p := o.Follow("k")
		ctx := endingAfter(t, func() {
			o.seen("k", driver.Snapshot{Holders: []driver.Holder{{ID: "a", Remaining: time.Minute}}}, 0, time.Now())
			o.refresh()
		})
		if one, err := p.Next(ctx); err != nil || one.Row.Key != "k" {
			t.Fatalf("%+v, %v, want the lock", one, err)
		}
		if _, err := p.Next(ctx); err == nil {
			t.Fatal("the same is shown twice")
		}
		p.Close()
	}
}
