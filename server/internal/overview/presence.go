package overview

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Service is one that serves the store, as far as it serves a page.
type Service struct {
	// Name is its host and process.
	Name string `json:"name"`
	// Page tells that a page is open there, Self that it is the one that answers.
	Page bool `json:"page"`
	Self bool `json:"self"`
}

// presenceKey is the room in which the services of a store tell that they are there.
// Each reads it with every sample. It is empty unless a page is open at one of them: then
// they all hold it shared, which the others learn by reading.
const presenceKey = "leasehold/overview"

// presenceTTL is how long a service that has died is still counted.
const presenceTTL = 3*sampleEvery + sampleEvery/2

// pageLabel is the label of those leases, and whether a page is open there.
const (
	pageLabel  = "page"
	pageOpen   = "open"
	pageClosed = "closed"
)

// presence is what a service says of itself in its store, and what it hears. Only the
// goroutine of Run changes the lease.
type presence struct {
	id   string // of the lease, empty for none
	page string // as the lease has it

	mu    sync.Mutex
	heard []Service // nil if nothing is known
}

func (p *presence) get() []Service {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Service{}, p.heard...)
}

func (p *presence) set(all []Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = all
}

// attend tells the other services that this one is there, if a page is open anywhere,
// and notes which they are. What fails is tried again with the next sample: nothing
// depends on it.
func (o *Overview) attend(ctx context.Context, watched bool, holders []driver.Holder) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	p := &o.presence
	open := slices.ContainsFunc(holders, func(h driver.Holder) bool { return h.ID != p.id && h.Labels[pageLabel] == pageOpen })
	if !watched && !open {
		o.depart(ctx)
		return
	}
	page := pageClosed
	if watched {
		page = pageOpen
	}
	_ = o.guarded(func() error { return o.announce(ctx, page) })
	store, ok := driver.As[driver.Inspector](o.store)
	if !ok {
		return
	}
	var snap driver.Snapshot
	err := o.guarded(func() (err error) {
		snap, err = store.Inspect(ctx, presenceKey)
		return err
	})
	if err == nil {
		p.set(p.among(snap.Holders))
	}
}

// announce takes the lease, or renews it.
func (o *Overview) announce(ctx context.Context, page string) error {
	p := &o.presence
	if p.id != "" && p.page != page {
		o.depart(ctx)
	}
	if p.id != "" {
		held := false
		o.store.Renew(ctx, []driver.Ref{{Key: presenceKey, ID: p.id, TTL: presenceTTL}}, func(_ int, got driver.Reply, err error) {
			held = err != nil || got.State == driver.Granted // after an error it may be
		})
		if held {
			return nil
		}
		p.id = ""
	}
	id := "page-" + rand.Text()
	got, err := o.store.Acquire(ctx, driver.Request{
		Key: presenceKey, ID: id, Owner: serviceName(), Labels: map[string]string{pageLabel: page}, Since: time.Now(),
		Mode: driver.Shared, TTL: presenceTTL,
	})
	if err == nil && got.State == driver.Granted {
		p.id, p.page = id, page
	}
	return err
}

// depart gives the lease back, even if ctx has ended.
func (o *Overview) depart(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.timeout)
	defer cancel()
	p := &o.presence
	p.set(nil)
	if p.id == "" {
		return
	}
	id := p.id
	p.id = ""
	_ = o.guarded(func() error {
		_, err := o.store.Release(ctx, driver.Ref{Key: presenceKey, ID: id})
		return err
	})
}

// among are the services among the holders. Whoever else holds the room is none.
func (p *presence) among(holders []driver.Holder) []Service {
	all := []Service{}
	for _, h := range holders {
		if page := h.Labels[pageLabel]; page != "" {
			all = append(all, Service{Name: h.Owner, Page: page == pageOpen, Self: h.ID == p.id})
		}
	}
	slices.SortFunc(all, func(a, b Service) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func serviceName() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s:%d", cmp.Or(host, "unknown"), os.Getpid())
}
