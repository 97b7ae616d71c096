package roomdriver

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/hints"
	"github.com/leasehold-go/leasehold/internal/room"
)

// subscription receives messages to its number at the driver's ear.
type subscription struct {
	*hints.Subscription
	d *Driver
}

// Watch implements [driver.Watcher]. Over a table that delivers no messages the
// subscription never has an address: tickets are then served when they ask.
func (d *Driver) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	if err := d.listen(); err != nil {
		return nil, err
	}
	sub, err := d.subs.Add(f)
	if err != nil {
		return nil, err
	}
	return &subscription{sub, d}, nil
}

// listen makes the table deliver messages, if it can.
func (d *Driver) listen() error {
	l, ok := d.table.(Listener)
	if !ok {
		return nil
	}
	d.listening.Lock()
	defer d.listening.Unlock()
	if d.closed.Load() {
		return driver.ErrClosed
	}
	if d.ear.Load() != nil {
		return nil
	}
	ear, err := l.Listen(d.receive)
	if err == nil {
		d.ear.Store(&ear)
	}
	return err
}

// Address implements [driver.Subscription].
func (s *subscription) Address() string {
	if here := s.d.here(); here != "" {
		return here + "." + s.Number()
	}
	return ""
}

// Close implements [driver.Subscription].
func (s *subscription) Close() error {
	s.Subscription.Close()
	return nil
}

// letter is the body of a message.
type letter struct {
	To   string      `json:"to"`             // a number, or empty for all
	From string      `json:"from,omitempty"` // the ear of the sender of a message to all, which has already delivered it to itself
	Hint driver.Hint `json:"hint"`
}

// longest is how many bytes of a reason a message has.
const longest = 256

// encode returns the body of a message. A key is up to 512 bytes long, which would be six
// times as much if it were made fit for HTML.
func (l *letter) encode() (body string, err error) {
	l.Hint.Reason = strings.ToValidUTF8(l.Hint.Reason[:min(len(l.Hint.Reason), longest)], "")
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err = e.Encode(l)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// messages returns the hints that are for other drivers than that with the ear here.
func (d *Driver) messages(here string, wakes []room.Wake) (out []Message) {
	for _, w := range wakes {
		ear, number, ok := strings.Cut(w.Address, ".")
		l := letter{To: number, Hint: w.Hint}
		switch {
		case w.Address == room.Everybody:
			ear, l.From, l.Hint.Key = Everybody, here, d.prefix+l.Hint.Key
		case !ok || ear == "" || ear == here:
			continue
		}
		if body, err := l.encode(); err == nil {
			out = append(out, Message{Address: ear, Body: body})
		}
	}
	return out
}

// here returns the address of our own ear.
func (d *Driver) here() string {
	if ear := d.ear.Load(); ear != nil {
		return (*ear).Address()
	}
	return ""
}

// patience bounds the sending of messages, regardless of the caller's time: waiters of
// other processes need them.
const patience = time.Second

// send delivers hints: directly to this driver's subscriptions, and by messages to other
// drivers, unless the transaction has sent them.
func (d *Driver) send(ctx context.Context, wakes []room.Wake) {
	if len(wakes) == 0 {
		return
	}
	here := d.here()
	for _, w := range wakes {
		if w.Address == room.Everybody {
			d.subs.DeliverAll(w.Hint)
		} else if ear, number, _ := strings.Cut(w.Address, "."); ear == here {
			d.subs.Deliver(number, w.Hint)
		}
	}
	n, ok := d.table.(Notifier)
	if out := d.messages(here, wakes); ok && d.tx == nil && len(out) > 0 {
		if d.rooms == nil { // they need no time
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
		}
		_ = n.Notify(ctx, out)
	}
}

// receive handles a message from the table; an empty message means that some were lost.
func (d *Driver) receive(body string) {
	if body == "" {
		d.subs.Resync()
		return
	}
	var l letter
	switch err := json.Unmarshal([]byte(body), &l); {
	case err != nil:
	case l.To != "":
		d.subs.Deliver(l.To, l.Hint)
	case l.Hint.Kind == driver.HintBroken && (l.From == "" || l.From != d.here()): // else they know
		if key, ok := strings.CutPrefix(l.Hint.Key, d.prefix); ok {
			l.Hint.Key = key
			d.subs.DeliverAll(l.Hint)
		}
	}
}
