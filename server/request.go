package server

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// checkAddress refuses an address that cannot be one of this store: with Redis it names a
// channel, and a client must not make the store write into the channels of other programs.
// Addresses of other replicas are recognized by their form only. A service that has just
// started waits until it has an address of its own to compare with. If the store delivers no
// hints, the result is empty.
func (s *Server) checkAddress(address string) (string, error) {
	if address == "" {
		return "", nil
	}
	for !s.hears() {
		time.Sleep(time.Millisecond) // the form of addresses is unknown until then
	}
	form := s.addressForm.Load()
	if now := s.session.Address(); form == nil && now != "" {
		known := formOf(now)
		form = &known
		s.addressForm.Store(form)
	}
	switch {
	case form == nil:
		return "", nil
	case *form == formOf(address):
		return address, nil
	}
	return "", newProblem(Invalid, "notify %q is not the address of an event stream of this service", oneline.Shorten(address))
}

// hears reports whether the service receives hints. It returns true as well if the store
// delivers no hints, or none within the store timeout: waiters poll then.
func (s *Server) hears() bool {
	return !s.session.Hears() || s.session.Address() != "" || time.Since(s.opened) > s.cfg.storeTimeout
}

var words = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[0-9A-Za-z]+`) })

// formOf returns the common part of all addresses of one store: an address without its random
// parts and numbers.
func formOf(address string) string {
	return words().ReplaceAllStringFunc(address, func(word string) string {
		switch {
		case len(word) >= 16:
			return fmt.Sprintf("<%d>", len(word))
		case strings.Trim(word, "0123456789") == "":
			return "<n>"
		}
		return word
	})
}

// lockName returns the name of the lock, from the path or else key. It compares the right to key,
// as [Server.authorize] does for the path.
func lockName(x *Exchange, key string) (string, error) {
	switch {
	case x.Name == "":
		x.Name = key
		if key != "" && !x.may(x.Route.Verb, key) {
			return "", forbidden(x.Route.Verb)
		}
	case key != "":
		return "", newProblem(Invalid, "the path names the lock: key is not allowed in the body or query")
	}
	return x.Name, check.Text("name", x.Name, 1, check.MaxKey)
}

// lifetime returns the TTL of a request.
func (s *Server) lifetime(m *wire.Millis) (time.Duration, error) {
	ttl := millisOr(m, min(defaultTTL, s.cfg.maxTTL))
	return ttl.Duration(), checkMillis("ttlMs", ttl, check.MinTTL, s.cfg.maxTTL)
}

// request returns the request to the store for the body of an acquire.
func (s *Server) request(name string, b *wire.Acquire) (driver.Request, error) {
	ttl, err := s.lifetime(b.TTL)
	if err != nil {
		return driver.Request{}, err
	}
	mode, modeErr := wire.ParseMode(b.Mode)
	policy, policyErr := wire.ParsePolicy(b.Policy)
	_, labelErr := check.Labels(b.Labels, maxLabels)
	err = cmp.Or(modeErr, policyErr, labelErr,
		check.Text("owner", b.Owner, 0, check.MaxOwner),
		check.Range("limit", b.Limit, 0, 1<<31-1),
		check.Range("permits", b.Permits, 0, 1<<31-1),
		check.Range("minToken", b.MinToken, 0, 1<<53-1),
		checkMillis("waitMs", b.Wait, 0, s.cfg.maxWait),
		checkMillis("ticketMs", millisOr(b.Ticket, 0), 0, maxTicket),
		checkMillis("lockDelayMs", b.LockDelay, 0, s.cfg.maxTTL),
		checkMillis("confirmMs", b.Confirm, 0, maxTicket),
		check.Text("notify", b.Notify, 0, check.MaxKey),
		check.Visit(b.Visit, maxVisit),
	)
	if err == nil && b.Notify != "" && b.Wait > 0 {
		err = newProblem(Invalid, "notify excludes waitMs: with waitMs the answer itself is held back until the grant")
	}
	if err == nil {
		b.Notify, err = s.checkAddress(b.Notify)
	}
	if err == nil && mode == driver.Exclusive && (b.Limit > 0 || b.Permits > 1) {
		err = newProblem(Invalid, "limit and permits are for mode shared")
	}
	if err == nil && b.Downgrade && (mode == driver.Exclusive || b.Wait > 0) {
		err = newProblem(Invalid, "downgrade is for mode shared, without waitMs")
	}
	if err == nil && b.Reentrant && b.Owner == "" {
		err = newProblem(Invalid, "reentrant needs an owner, which identifies the holder")
	}
	return driver.Request{
		Key: name, ID: b.LeaseID, Owner: b.Owner, Reenter: b.Reentrant, Labels: b.Labels, Since: b.Since,
		Mode: mode, Policy: policy, Ordered: b.Ordered, Limit: int(b.Limit), Resize: b.Resize, Downgrade: b.Downgrade, Weight: int(b.Permits), TTL: ttl,
		LockDelay: b.LockDelay.Duration(), MinToken: int64(b.MinToken), HintAddress: b.Notify, Visit: b.Visit, SingleUseID: true,
		ConfirmWindow: cmp.Or(b.Confirm.Duration(), timing.Window(ttl)),
	}, err
}
