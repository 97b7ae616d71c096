package driver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/internal/test/ask"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noError = ask.NoError

// table is a store of three verbs, such as one table in a database.
type table struct {
	mu     sync.Mutex
	rows   map[string]entry
	closed bool
	// hang, if set, blocks calls on hangKey until it is closed.
	hang    chan struct{}
	hangKey string
	// lose is the number of answers that get lost after their effect.
	lose int
}

type entry struct {
	id  string
	end time.Time
}

var errLost = errors.New("connection reset")

// locked runs step on the live entry of key.
func (t *table) locked(ctx context.Context, key string, step func(e entry, live bool) bool) (bool, error) {
	if t.hang != nil && key == t.hangKey {
		select {
		case <-t.hang:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.rows[key]
	done := step(e, ok && time.Now().Before(e.end))
	if t.lose > 0 {
		t.lose--
		return false, errLost
	}
	return done, nil
}

func (t *table) SetNX(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	return t.locked(ctx, key, func(_ entry, live bool) bool {
		if live {
			return false
		}
		if t.rows == nil {
			t.rows = make(map[string]entry)
		}
		t.rows[key] = entry{id, time.Now().Add(ttl)}
		return true
	})
}

func (t *table) Renew(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	return t.locked(ctx, key, func(e entry, live bool) bool {
		if !live || e.id != id {
			return false
		}
		if end := time.Now().Add(ttl); end.After(e.end) {
			t.rows[key] = entry{id, end}
		}
		return true
	})
}

func (t *table) Delete(ctx context.Context, key, id string) (bool, error) {
	return t.locked(ctx, key, func(e entry, live bool) bool {
		if !live || e.id != id {
			return false
		}
		delete(t.rows, key)
		return true
	})
}

func (t *table) Close() error {
	t.closed = true
	return nil
}

func TestFromBasic_Conformance(t *testing.T) {
	var store *table
	drivertest.Run(t, drivertest.Config{
		Without: drivertest.BeyondBasic,
		Open: func(testing.TB) driver.Driver {
			return driver.FromBasic(struct{ driver.Basic }{store}) // without its Close
		},
		Wrap: func(t *testing.T, row func(*testing.T)) {
			synctest.Test(t, func(t *testing.T) {
				store = new(table)
				row(t)
			})
		},
	})
}

func TestFromBasic_ALostAnswerIsGivenAgain(t *testing.T) {
	store := &table{lose: 1}
	d := driver.FromBasic(store)
	req := driver.Request{Key: "k", ID: "a", TTL: time.Minute}
	if _, err := d.Acquire(t.Context(), req); !errors.Is(err, errLost) {
		t.Fatalf("an answer that was lost came as %v", err)
	}
	if reply, err := d.Acquire(t.Context(), req); err != nil || reply.State != driver.Granted {
		t.Fatalf("%+v, %v", reply, err)
	}
	req.ID = "b"
	if reply, err := d.Acquire(t.Context(), req); err != nil || reply.State != driver.Busy {
		t.Fatalf("%+v, %v", reply, err)
	}
}

func TestFromBasic_OneHungKeyDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &table{hang: make(chan struct{}), hangKey: "k0"}
		d := driver.FromBasic(store)
		refs := make([]driver.Ref, 100)
		for i := range refs {
			refs[i] = driver.Ref{Key: fmt.Sprint("k", i), ID: "a", TTL: time.Hour}
			if i > 0 {
				_, _ = store.SetNX(t.Context(), refs[i].Key, "a", time.Minute)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start, renewed := time.Now(), 0
		d.Renew(ctx, refs, func(i int, reply driver.Reply, err error) {
			switch {
			case i == 0 && !errors.Is(err, context.DeadlineExceeded):
				t.Errorf("the hung key: %+v, %v", reply, err)
			case i > 0 && (err != nil || reply.State != driver.Granted || time.Since(start) > 0):
				t.Errorf("key %d after %v: %+v, %v", i, time.Since(start), reply, err)
			case i > 0:
				renewed++
			}
		})
		if renewed != len(refs)-1 {
			t.Fatalf("%d renewed", renewed)
		}
	})
}

func TestFromBasic_CloseClosesTheStore(t *testing.T) {
	store := new(table)
	d := driver.FromBasic(store)
	for range 2 {
		noError(t, d.Close())
	}
	if !store.closed {
		t.Fatal("the store is open")
	}
}

// The suite makes all other requests that it does not support.
func TestSupports_AsksTheDriver(t *testing.T) {
	part := driver.FromBasic(new(table))
	if err := driver.Supports(struct{ driver.Driver }{part}, driver.Request{Mode: driver.Shared}); err != nil {
		t.Errorf("%v by a driver that is not Limited", err)
	}
	if err := driver.Supports(part, driver.Request{Resize: true}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("resize: %v", err)
	}
	plain := driver.Request{Key: "k", ID: "a", TTL: time.Second, TicketTTL: time.Second, Policy: driver.Barging}
	noError(t, driver.Supports(part, plain))
}
