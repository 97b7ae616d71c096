package matrix_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
)

// onServiceAsClients is two clients of two services on a quorum, without faults.
func onServiceAsClients(t *testing.T) *world {
	w := onServiceOnQuorum(t)
	for i := range w.drivers {
		d, err := httpdriver.Open("http://service", httpdriver.WithClient(&http.Client{Transport: &sky{weather: new(weather), table: w.tables[0], replicas: w.urls[:]}}))
		if err != nil {
			t.Fatal(err)
		}
		w.drivers[i] = d
	}
	return w
}

// TestMatrix_WhatAStoreHasNotIsRefused calls every entry that a quorum does not support, on a
// quorum and by way of services on one: the entry is refused, and leaves no record.
func TestMatrix_WhatAStoreHasNotIsRefused(t *testing.T) {
	settings := []setting{{name: "quorum", open: onQuorum}, {name: "redis quorum", open: onRedisQuorum}, {name: "service on a quorum", open: onServiceAsClients}}
	for _, s := range settings {
		for _, e := range append(locks(), others()...) {
			if e.notOn["quorum"] != noQuorum {
				continue
			}
			t.Run(s.name+"/"+e.name(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { refuses(t, s.open(t), e) }) })
		}
	}
}

// refuses checks that an entry, or a step before it, is refused.
func refuses(t *testing.T, w *world, e *entry) {
	c := &cast{world: w, d: disturbance{long: true}}
	for i, p := range []**leasehold.Client{&c.a, &c.b} {
		var err error
		if *p, err = leasehold.New(w.drivers[i], leasehold.WithTTL(ttl), leasehold.WithName([]string{"A", "B"}[i])); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if e.prepare != nil {
		err = e.prepare(c)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err = e.call(ctx, c)
		cancel()
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("it is not refused: %v", err)
	}
	c.giveBack()
	c.wg.Wait()
	c.absent("refused")
	for _, client := range []*leasehold.Client{c.a, c.b} {
		if err := client.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	w.strays.Wait()
	w.stop()
	for _, wrong := range c.wrongs {
		t.Error(wrong)
	}
}
