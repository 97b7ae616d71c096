package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/doctor"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
)

// slow makes renewals last d.
func slow(d time.Duration) func(*intercept.Driver) {
	return func(store *intercept.Driver) {
		store.Through = func(ctx context.Context, m *intercept.Message, send func(context.Context) error) error {
			if m.Verb == intercept.Renew {
				time.Sleep(d)
			}
			return send(ctx)
		}
	}
}

// token sets the token in each answer to an acquire.
func token(mint func() int64) func(*intercept.Driver) {
	return func(store *intercept.Driver) {
		store.Change = func(_ *intercept.Message, reply *driver.Reply) { reply.Token = mint() }
	}
}

// quiet is a store without subscriptions.
type quiet struct{ *memdriver.Driver }

func (quiet) Watch(func(driver.Hint)) (driver.Subscription, error) { return nil, errors.New("quiet") }

func TestExamine_FindsWhatTheUseOfALockShows(t *testing.T) {
	const ttl = 600 * time.Millisecond
	var minted int64
	silent := quiet{memdriver.New()}
	deaf := func(store *intercept.Driver) { store.Hint = func(driver.Hint, func(driver.Hint)) {} }
	refused := func(store *intercept.Driver) { store.Store = func() driver.Driver { return silent } }
	for name, row := range map[string]struct {
		suffers func(*intercept.Driver)
		want    driver.Severity
		check   string
		text    string
	}{
		"well":           {slow(0), driver.Good, "lock", "fencing token"},
		"woken":          {slow(0), driver.Good, "wake-up", "is woken"},
		"quick":          {slow(0), driver.Good, "round trip", "a renewal takes"},
		"slow":           {slow(ttl / 10), driver.Warning, "round trip", "lose a lease"},
		"too slow":       {slow(ttl/3 + 10*time.Millisecond), driver.Unsafe, "round trip", "over before they are renewed"},
		"forgetful":      {token(func() int64 { minted++; return minted }), driver.Unsafe, "lock", "not recognised"},
		"without tokens": {token(func() int64 { return 0 }), driver.Warning, "lock", "no fencing tokens"},
		"deaf":           {deaf, driver.Warning, "wake-up", "no wake-up arrived"},
		"not subscribed": {refused, driver.Warning, "wake-up", "no subscription is possible"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := intercept.New(memdriver.New(), nil)
				slow(0)(p)
				row.suffers(p)
				report, err := doctor.Examine(t.Context(), p, ttl)
				ask.NoError(t, err)
				found := report.About(row.check)
				if len(found) != 1 || found[0].Severity != row.want || !strings.Contains(found[0].What+found[0].Why, row.text) {
					t.Errorf("%+v, want %v with %q", found, row.want, row.text)
				}
				if keys, _, err := p.List(t.Context(), "", ""); err != nil || len(keys) > 0 {
					t.Errorf("left behind: %q, %v", keys, err)
				}
			})
		})
	}
}

func TestExamine_SaysThatAStoreCouldNotBeLookedAt(t *testing.T) {
	p := intercept.New(memdriver.New(), func(context.Context, *intercept.Message, func(context.Context) error) error {
		return driver.ErrUnavailable
	})
	if report, err := doctor.Examine(t.Context(), p, time.Second); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%+v, %v, want ErrUnavailable", report, err)
	}
}

func TestIndependent_FindsWhatStoresHaveInCommon(t *testing.T) {
	a := doctor.Store{Name: "a", Nodes: []driver.Node{{Name: "h1:1", Server: "s1", Data: "d1"}}}
	for name, row := range map[string]struct {
		other driver.Node
		want  driver.Severity
		text  string
	}{
		"nothing":     {driver.Node{Name: "h2:1", Server: "s2", Data: "d2"}, driver.Good, "no server in common"},
		"the server":  {driver.Node{Name: "alias:1", Server: "s1", Data: "d1"}, driver.Unsafe, "same server"},
		"the data":    {driver.Node{Name: "h2:1", Server: "s2", Data: "d1"}, driver.Unsafe, "copies"},
		"the machine": {driver.Node{Name: "h1:2", Server: "s2", Data: "d2"}, driver.Warning, "one machine, h1"},
	} {
		b := doctor.Store{Name: "b", Nodes: []driver.Node{{Name: "h9:1", Server: "s9", Data: "d9"}, row.other}}
		found := doctor.Independent([]doctor.Store{a, b})
		if len(found) != 1 || found[0].Severity != row.want || !strings.Contains(found[0].What, row.text) {
			t.Errorf("%s: %+v, want %v with %q", name, found, row.want, row.text)
		}
	}
	if found := doctor.Independent([]doctor.Store{a, {Name: "b"}}); len(found) != 1 || found[0].Severity != driver.Notice {
		t.Errorf("next to a store without a name: %+v", found)
	}
	if found := doctor.Independent([]doctor.Store{a}); len(found) > 0 {
		t.Errorf("one store alone: %+v", found)
	}
}
