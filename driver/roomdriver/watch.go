package roomdriver

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/hints"
	"github.com/leasehold-go/leasehold/internal/room"
)

// subscription hears what is sent to its number at the driver's ear.
type subscription struct {
	*hints.Subscription
	ear driver.Subscription // nil if the table delivers nothing
}

// Watch implements [driver.Watcher]. Over a table that delivers no messages the
// subscription never has an address: tickets are then served when they ask.
func (d *Driver) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	ear, err := d.listen()
	if err != nil {
		return nil, err
	}
	sub, err := d.subs.Add(f)
	if err != nil {
		return nil, err
	}
	return &subscription{sub, ear}, nil
}

// listen has the table deliver messages, if it can.
func (d *Driver) listen() (driver.Subscription, error) {
	l, ok := d.table.(Listener)
	if !ok {
		return nil, nil
	}
	d.listening.Lock()
	defer d.listening.Unlock()
	d.mu.Lock()
	ear := d.ear
	d.mu.Unlock()
	if d.closed.Load() {
		return nil, driver.ErrClosed
	}
	if ear != nil {
		return ear, nil
	}
	ear, err := l.Listen(d.receive)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.ear = ear
	d.mu.Unlock()
	return ear, nil
}

// Address implements [driver.Subscription].
func (s *subscription) Address() string {
	if s.ear == nil {
		return ""
	}
	ear := s.ear.Address()
	if ear == "" {
		return ""
	}
	return ear + "." + s.Number()
}

// Close implements [driver.Subscription].
func (s *subscription) Close() error {
	s.Subscription.Close()
	return nil
}

// letter is the body of a message.
type letter struct {
	To   string      `json:"to"`
	Hint driver.Hint `json:"hint"`
}

// longest is how many bytes of a reason a message has.
const longest = 512

// messages returns the hints that are for other drivers.
func (d *Driver) messages(wakes []room.Wake) (out []Message) {
	if len(wakes) == 0 {
		return nil
	}
	here := d.here()
	for _, w := range wakes {
		ear, number, ok := strings.Cut(w.Address, ".")
		if !ok || ear == "" || ear == here {
			continue
		}
		w.Hint.Reason = strings.ToValidUTF8(w.Hint.Reason[:min(len(w.Hint.Reason), longest)], "")
		body, err := json.Marshal(letter{To: number, Hint: w.Hint})
		if err == nil {
			out = append(out, Message{Address: ear, Body: string(body)})
		}
	}
	return out
}

// here is the address of our own ear.
func (d *Driver) here() string {
	d.mu.Lock()
	ear := d.ear
	d.mu.Unlock()
	if ear == nil {
		return ""
	}
	return ear.Address()
}

// patience bounds the sending of messages, which does not depend on how long the
// caller has time: somebody else waits for them.
const patience = time.Second

// send delivers hints: to our own subscriptions directly, to others by messages,
// unless the transaction has sent them.
func (d *Driver) send(ctx context.Context, wakes []room.Wake) {
	if len(wakes) == 0 {
		return
	}
	here := d.here()
	for _, w := range wakes {
		if ear, number, _ := strings.Cut(w.Address, "."); ear == here {
			d.subs.Deliver(number, w.Hint)
		}
	}
	n, ok := d.table.(Notifier)
	if out := d.messages(wakes); ok && d.tx == nil && len(out) > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_ = n.Notify(ctx, out)
	}
}

// receive takes a message that came by way of the table; an empty one says that some
// were lost.
func (d *Driver) receive(body string) {
	if body == "" {
		d.subs.Resync()
		return
	}
	var l letter
	if json.Unmarshal([]byte(body), &l) == nil {
		d.subs.Deliver(l.To, l.Hint)
	}
}
