package drivertest

import (
	"reflect"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// listen subscribes the process; its requests carry the address from now on. A
// store that is without hints may still be a driver.Watcher, without an address.
func (p *process) listen() *process {
	p.Helper()
	if p.cfg.Without&Watch != 0 {
		return p
	}
	p.hints = make(chan driver.Hint, 4096)
	p.listenBy(func(h driver.Hint) {
		select {
		case p.hints <- h:
		default: // hints may be lost
		}
	})
	return p
}

// listenBy subscribes the process with a function of the row's own.
func (p *process) listenBy(f func(driver.Hint)) {
	p.Helper()
	sub, err := optional[driver.Watcher](p, Watch).Watch(f)
	if err != nil {
		p.Fatalf("watch: %v", err)
	}
	p.sub = sub
	// A subscription may be ready only after some time.
	for end := time.Now().Add(patience); sub.Address() == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.Fatal("watch: still no address")
		}
	}
}

// arrives reports whether c has an element within d.
func arrives(c <-chan bool, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}

func (p *process) address() string {
	if p.sub == nil {
		return ""
	}
	return p.sub.Address()
}

// hear waits for the hint of that kind about the row's lease or ticket called
// name. It keeps other hints for later, because hints of different ids may arrive in any order.
func (p *process) hear(kind driver.HintKind, name string) driver.Hint {
	p.Helper()
	return p.hearAny(func(h driver.Hint) bool { return h.Kind == kind && h.ID == p.id(name) }, name)
}

// enters waits until the tickets are handed the room, in this order, and confirms each by a renewal.
func (p *process) enters(names ...string) {
	p.Helper()
	for _, name := range names {
		p.hear(driver.HintGranted, name)
		p.renew(name, driver.Granted)
	}
}

// optional returns the driver as the optional interface that the feature needs.
func optional[T any](p *process, feature Feature) T {
	p.Helper()
	found, ok := driver.As[T](p.d)
	if !ok {
		p.Fatalf("the driver does not implement %v; set Without: drivertest.%v if this is intended", reflect.TypeFor[T](), feature)
	}
	return found
}

// hearAny waits for a hint for which wanted returns true.
func (p *process) hearAny(wanted func(driver.Hint) bool, what string) driver.Hint {
	p.Helper()
	for i, h := range p.backlog {
		if wanted(h) {
			p.backlog = append(p.backlog[:i], p.backlog[i+1:]...)
			return h
		}
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		select {
		case h := <-p.hints:
			if wanted(h) {
				return h
			}
			p.backlog = append(p.backlog, h)
		case <-timeout.C:
			p.Fatalf("no hint for %s within %v; received %+v", what, patience, p.backlog)
		}
	}
}
