package leasehold

import (
	"container/heap"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

func (c *Client) instant(t time.Time) clock.Instant { return c.epoch.Instant(t) }

func (c *Client) time(i clock.Instant) time.Time { return c.epoch.Time(i) }

// deadlines rings for leases when their time may be up, with one timer for all.
type deadlines struct {
	c *Client

	mu    sync.Mutex
	holds ringing
	timer *time.Timer
	armed clock.Instant // when the timer fires; 0 if it does not
}

// set has h ring at a time, instead of any that was set before.
func (d *deadlines) set(h *hold, at clock.Instant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h.rings = at
	if h.place > 0 {
		heap.Fix(&d.holds, h.place-1)
	} else {
		heap.Push(&d.holds, h)
	}
	d.arm()
}

// clear has h ring no more.
func (d *deadlines) clear(h *hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.place > 0 {
		heap.Remove(&d.holds, h.place-1)
	}
	if len(d.holds) == 0 && d.timer != nil {
		d.timer.Stop()
		d.armed = 0
	}
}

// arm sets the timer to the first deadline, unless it fires before anyway.
func (d *deadlines) arm() {
	if len(d.holds) == 0 || d.armed != 0 && d.armed <= d.holds[0].rings {
		return
	}
	d.armed = d.holds[0].rings
	wait := max(time.Duration(d.armed-d.c.instant(d.c.now())), 0)
	if d.timer == nil {
		d.timer = time.AfterFunc(wait, d.fire)
		return
	}
	d.timer.Reset(wait)
}

// fire rings. Whoever is told of a loss may take its time: it delays nobody
// else's.
func (d *deadlines) fire() {
	d.mu.Lock()
	d.armed = 0
	now := d.c.instant(d.c.now())
	var due []*hold
	for len(d.holds) > 0 && d.holds[0].rings <= now {
		due = append(due, heap.Pop(&d.holds).(*hold))
	}
	d.arm()
	d.mu.Unlock()
	for _, h := range due {
		if h.snooze(now) {
			go h.live()
		}
	}
}

// ringing is a min-heap by the time to ring.
type ringing []*hold

func (r ringing) Len() int           { return len(r) }
func (r ringing) Less(i, j int) bool { return r[i].rings < r[j].rings }
func (r ringing) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].place, r[j].place = i+1, j+1
}

func (r *ringing) Push(x any) {
	h := x.(*hold)
	*r = append(*r, h)
	h.place = len(*r)
}

func (r *ringing) Pop() any {
	old := *r
	h := old[len(old)-1]
	old[len(old)-1] = nil
	*r = old[:len(old)-1]
	h.place = 0
	return h
}
