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
)

// patient is a store with a complaint.
type patient struct {
	*memdriver.Driver
	delay  time.Duration // of a renewal
	forget bool          // mints a token for every request
	minted int64
	plain  bool  // has no tokens
	deaf   bool  // delivers no wake-ups
	fail   error // of Acquire
}

func (p *patient) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if p.fail != nil {
		return driver.Reply{}, p.fail
	}
	reply, err := p.Driver.Acquire(ctx, req)
	switch {
	case p.forget:
		p.minted++
		reply.Token += p.minted
	case p.plain:
		reply.Token = 0
	}
	return reply, err
}

func (p *patient) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	time.Sleep(p.delay)
	p.Driver.Renew(ctx, refs, each)
}

func (p *patient) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	if p.deaf {
		return nil, errors.New("deaf")
	}
	return p.Driver.Watch(f)
}

func TestExamine_FindsWhatTheUseOfALockShows(t *testing.T) {
	const ttl = 600 * time.Millisecond
	for name, row := range map[string]struct {
		patient patient
		want    driver.Severity
		check   string
		text    string
	}{
		"well":           {patient{}, driver.Good, "lock", "fencing token"},
		"woken":          {patient{}, driver.Good, "wake-up", "is woken"},
		"quick":          {patient{}, driver.Good, "round trip", "a renewal takes"},
		"slow":           {patient{delay: ttl / 10}, driver.Warning, "round trip", "lose a lease"},
		"too slow":       {patient{delay: ttl/3 + 10*time.Millisecond}, driver.Unsafe, "round trip", "over before they are renewed"},
		"forgetful":      {patient{forget: true}, driver.Unsafe, "lock", "not recognised"},
		"without tokens": {patient{plain: true}, driver.Warning, "lock", "no fencing tokens"},
		"deaf":           {patient{deaf: true}, driver.Warning, "wake-up", "ask twice a second"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := row.patient
				p.Driver = memdriver.New()
				report, err := doctor.Examine(t.Context(), &p, ttl)
				if err != nil {
					t.Fatal(err)
				}
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
	p := &patient{Driver: memdriver.New(), fail: driver.ErrUnavailable}
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
