package httpdriver_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/server"
)

// replicas are services on one store, of which one answers at a time.
type replicas struct {
	all     []http.Handler
	current atomic.Int64
	batches atomic.Int64 // of renewals
}

func (r *replicas) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/v1/leases:renew" {
		r.batches.Add(1)
	}
	r.all[r.current.Load()].ServeHTTP(w, req)
}

// restarting starts replicas on store, one for each list of options. The test switches between
// them.
func restarting(t *testing.T, store driver.Driver, each ...[]server.Option) (*replicas, string) {
	t.Helper()
	r := new(replicas)
	for _, opts := range each {
		s, err := server.New(store, opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		r.all = append(r.all, s)
	}
	h := httptest.NewServer(r)
	t.Cleanup(h.Close)
	return r, h.URL
}

// The client learns the bound of the service, and of the quorum behind it, only from its answer.
func TestExtend_P3_BeyondWhatTheServiceAllowsChangesNothing(t *testing.T) {
	majority, err := quorumdriver.New([]driver.Driver{memdriver.New(), memdriver.New(), memdriver.New()})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		store driver.Driver
		opts  []server.Option
		want  error
	}{
		"of itself":   {memdriver.New(), []server.Option{server.WithMaxTTL(10 * time.Minute)}, leasehold.ErrInvalid},
		"by a quorum": {majority, nil, leasehold.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			defer c.store.Close()
			_, url := restarting(t, c.store, c.opts)
			client, err := leasehold.New(open(t, url), leasehold.WithTTL(time.Minute), leasehold.WithMaxRenewAttempts(1))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			all, err := leasehold.All(client.Mutex("a"), client.Mutex("b")).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := all.Extend(t.Context(), time.Hour); !errors.Is(err, c.want) || errors.Is(err, leasehold.ErrNotHeld) {
				t.Errorf("extended to an hour: %v, want %v", err, c.want)
			}
			if err := all.Extend(t.Context(), 5*time.Minute); err != nil {
				t.Errorf("extended by an allowed time: %v", err)
			}
			if err := all.Extend(t.Context(), time.Hour); !errors.Is(err, c.want) {
				t.Errorf("extended to an hour again: %v, want %v", err, c.want)
			}
			for _, l := range all.Parts() {
				if l.Remaining() < 4*time.Minute || l.State() != leasehold.Held {
					t.Errorf("%s: %v, %v left", l.Key(), l.State(), l.Remaining())
				}
			}
			if err := all.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

// One service is restarted with a smaller maximum TTL, while other services on the same store
// are unchanged.
func TestRenew_P3_AReplicaThatAllowsLessEndsNoLease(t *testing.T) {
	store := memdriver.New()
	defer store.Close()
	r, url := restarting(t, store, nil, []server.Option{server.WithMaxTTL(10 * time.Second)})
	client, err := leasehold.New(open(t, url), leasehold.WithTTL(time.Minute), leasehold.WithRenewFraction(0.001))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l, err := client.Mutex("k").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.current.Store(1)
	if err := l.Extend(t.Context(), time.Minute); !errors.Is(err, leasehold.ErrInvalid) {
		t.Errorf("extended: %v", err)
	}
	asked := r.batches.Load()
	eventually(t, func() bool { return r.batches.Load() > asked+1 })
	if l.State() != leasehold.Unconfirmed {
		t.Errorf("it is %v", l.State())
	}
	r.current.Store(0)
	eventually(t, func() bool { return l.State() == leasehold.Held })
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

// Only the release states how long the lock stays closed, and then it is too late to refuse
// the minimum hold.
func TestRelease_AMinimumHoldMayBeLongerThanTheServiceAllowsLeases(t *testing.T) {
	store := memdriver.New()
	defer store.Close()
	_, url := restarting(t, store, []server.Option{server.WithMaxTTL(time.Minute)})
	client, err := leasehold.New(open(t, url), leasehold.WithMinHold(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l, err := client.Mutex("k").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
	held := new(leasehold.HeldError)
	if _, err := client.Mutex("k").TryLock(t.Context()); !errors.As(err, &held) || !held.Closed || held.Remaining < 23*time.Hour {
		t.Errorf("afterwards: %v, %+v", err, held)
	}
}
