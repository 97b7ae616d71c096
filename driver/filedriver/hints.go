package filedriver

import (
	"errors"
	"strings"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/hints"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/room"
)

// subscription is one caller of Watch. Its address is the id of the store's mailbox and a
// number.
type subscription struct {
	*hints.Subscription
	mail *mailbox
}

// Watch delivers hints to f, one at a time, until the subscription is closed. All
// subscriptions of a Driver share one watch of the system (on Linux one of the user's
// inotify instances) until Close. If the system has no watch left, the error matches
// [driver.ErrUnavailable] and waiters poll; the next Watch tries again. See [driver.Watcher].
func (s *Driver) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	mail, err := s.mailbox()
	if errors.Is(err, driver.ErrClosed) {
		return nil, driver.ErrClosed
	} else if err != nil {
		return nil, unavailable("wake-ups", err)
	}
	sub, err := s.subs.Add(f)
	if err != nil {
		return nil, err
	}
	return &subscription{sub, mail}, nil
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
	return s.mail.id + "." + s.Number()
}

// Close implements [driver.Subscription].
func (s *subscription) Close() error {
	s.Subscription.Close()
	return nil
}

// tell delivers a hint for all subscriptions, unless its lock has another prefix.
func (s *Driver) tell(h driver.Hint) {
	if key, ok := strings.CutPrefix(h.Key, s.config.prefix); ok {
		h.Key = key
		s.subs.DeliverAll(h)
	}
}

// deliver sends hints: directly to this Driver's subscriptions, and through mailboxes to
// other processes.
func (s *Driver) deliver(wakes []room.Wake) {
	if len(wakes) == 0 {
		return
	}
	letters := make(map[string][]message)
	s.mu.Lock()
	mail := s.mail
	s.mu.Unlock()
	for _, w := range wakes {
		id, number, ok := strings.Cut(w.Address, ".")
		switch {
		case w.Address == room.Everybody:
			s.tell(w.Hint)
			for _, id := range s.mailboxes() {
				if mail == nil || mail.id != id {
					letters[id] = append(letters[id], message{Hint: w.Hint})
				}
			}
		case !ok || !mailboxID(id):
		case mail != nil && mail.id == id:
			s.subs.Deliver(number, w.Hint)
		default:
			letters[id] = append(letters[id], message{To: number, Hint: w.Hint})
		}
	}
	for id, mail := range letters {
		s.send(id, mail)
	}
}
