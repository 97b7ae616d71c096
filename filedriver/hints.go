package filedriver

import (
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/room"
)

// subscription is one caller of Watch. Its address is the id of the store's mailbox and a
// number.
type subscription struct {
	store  *Driver
	mail   *mailbox
	number string

	f      func(driver.Hint)
	queue  []driver.Hint // guarded by store.mu
	active bool          // a goroutine is delivering; guarded by store.mu
	idle   *sync.Cond    // on store.mu
}

// Watch delivers hints to f, one at a time, until the subscription is closed. All
// subscriptions of a Driver share one watch of the system (on Linux one of the user's
// inotify instances) until Close. If no watch is left, hints come through a named pipe
// instead. If that fails too, the error matches [driver.ErrUnavailable] and waiters poll;
// the next Watch tries again. See [driver.Watcher].
func (s *Driver) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	mail, err := s.mailbox()
	if errors.Is(err, driver.ErrClosed) {
		return nil, driver.ErrClosed
	} else if err != nil {
		return nil, unavailable("wake-ups", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return nil, driver.ErrClosed
	}
	s.nsub++
	sub := &subscription{store: s, mail: mail, number: strconv.Itoa(s.nsub), f: f, idle: sync.NewCond(&s.mu)}
	s.subs[sub.number] = sub
	return sub, nil
}

// mailbox returns the store's mailbox. The first call makes it.
func (s *Driver) mailbox() (*mailbox, error) {
	s.mailboxMaking.Lock()
	defer s.mailboxMaking.Unlock()
	s.mu.Lock()
	mail := s.mail
	s.mu.Unlock()
	if mail != nil {
		return mail, nil
	}
	mail, err := s.newMailbox()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return nil, oneline.Join(driver.ErrClosed, mail.close())
	}
	s.mail = mail
	s.work.Go(mail.run)
	return mail, nil
}

// Address implements [driver.Subscription].
func (s *subscription) Address() string {
	if s.mail.broken.Load() {
		return ""
	}
	return s.mail.id + "." + s.number
}

// Close implements [driver.Subscription].
func (s *subscription) Close() error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.end()
	return nil
}

// end ends the delivery, and waits for a call of f under way. The caller holds store.mu,
// which end unlocks while it waits.
func (s *subscription) end() {
	delete(s.store.subs, s.number)
	s.queue = nil
	for s.active {
		s.idle.Wait()
	}
}

// deliver sends hints: directly to this Driver's subscriptions, and through mailboxes to
// those of others.
func (s *Driver) deliver(wakes []room.Wake) {
	if len(wakes) == 0 {
		return
	}
	letters := make(map[string][]message)
	s.mu.Lock()
	for _, w := range wakes {
		id, number, ok := strings.Cut(w.Address, ".")
		switch {
		case !ok || !mailboxID(id):
		case s.mail != nil && s.mail.id == id:
			s.push(number, w.Hint)
		default:
			letters[id] = append(letters[id], message{To: number, Hint: w.Hint})
		}
	}
	s.mu.Unlock()
	for id, mail := range letters {
		s.send(id, mail)
	}
}

// receive delivers a hint from the mailbox.
func (s *Driver) receive(l message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.push(l.To, l.Hint)
}

// resync tells every subscription that hints may have been lost.
func (s *Driver) resync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number := range s.subs {
		s.push(number, driver.Hint{Kind: driver.HintResync})
	}
}

// push queues a hint for a goroutine that calls f in order and without a lock, since f
// may call the store. The caller holds s.mu.
func (s *Driver) push(number string, hint driver.Hint) {
	sub := s.subs[number]
	if sub == nil {
		return
	}
	sub.queue = append(sub.queue, hint)
	if !sub.active {
		sub.active = true
		go sub.run()
	}
}

func (s *subscription) run() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for len(s.queue) > 0 {
		hint := s.queue[0]
		s.queue = s.queue[1:]
		s.store.mu.Unlock()
		s.f(hint)
		s.store.mu.Lock()
	}
	s.active = false
	s.idle.Broadcast()
}
