package server

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/oneline"
)

// checkAddress refuses an address that cannot be one of this store: with
// Redis it names a channel, and a client must not have the store write into
// channels that are others' business. Replicas know one another's addresses by
// their form only. A service that has just started waits until it has one of its
// own to compare with; where the store delivers nothing the ticket does without.
func (s *Server) checkAddress(address string) (string, error) {
	if address == "" {
		return "", nil
	}
	for !s.hears() {
		time.Sleep(time.Millisecond) // until then nothing is known of addresses
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

// hears reports whether the service listens for hints. A store that cannot deliver
// them is given up after a while: who waits then asks.
func (s *Server) hears() bool {
	return !s.session.Hears() || s.session.Address() != "" || time.Since(s.opened) > s.cfg.storeTimeout
}

var words = regexp.MustCompile(`[0-9A-Za-z]+`)

// formOf is what the addresses of one store have in common: what is random or
// counted in them is left out.
func formOf(address string) string {
	return words.ReplaceAllStringFunc(address, func(word string) string {
		switch {
		case len(word) >= 16:
			return fmt.Sprintf("<%d>", len(word))
		case strings.Trim(word, "0123456789") == "":
			return "<n>"
		}
		return word
	})
}
