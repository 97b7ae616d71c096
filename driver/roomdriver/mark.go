package roomdriver

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// The mark is a record of its own: Closed is the end of the quarantine, and Head the name
// in the mark. Before there is a mark, Head names the process for which the store is
// reserved until Closed.

// Marked implements [driver.Marker].
func (d *Driver) Marked(ctx context.Context) (mark driver.Mark, ok bool, err error) {
	if err := d.usable(ctx); err != nil {
		return mark, false, err
	}
	c := looking{visit: visit{key: markKey}, see: room.Look}
	if err := d.look(ctx, &c); err != nil || c.snap.Token == 0 {
		return mark, false, err
	}
	return driver.Mark{Name: c.head, Quarantine: max(c.snap.Closed, 0)}, true, nil
}

// Reserve implements [driver.Marker].
func (d *Driver) Reserve(ctx context.Context, by string, life time.Duration) (bool, error) {
	if err := d.usable(ctx); err != nil {
		return false, err
	}
	c := reserving{visit: visit{key: markKey}, by: by, life: d.cfg.longer(life)}
	if err := d.visit(ctx, &c); err != nil {
		return false, err
	}
	return c.reserved, nil
}

// reserving is a call of Reserve.
type reserving struct {
	visit
	by       string
	life     time.Duration
	reserved bool
}

func (c *reserving) Step(r *room.Record, now int64) ([]room.Wake, error) {
	c.reserved = r.Token == 0 && (r.Closed <= now/1000 || r.Head == c.by)
	if c.reserved {
		r.Head, r.Closed = c.by, now/1000+c.life.Milliseconds()
	}
	return nil, nil
}

// Mark implements [driver.Marker].
func (d *Driver) Mark(ctx context.Context, mark driver.Mark, by string) error {
	if err := d.usable(ctx); err != nil {
		return err
	}
	mark.Quarantine = d.cfg.longer(mark.Quarantine)
	return d.visit(ctx, &marking{visit: visit{key: markKey}, mark: mark, by: by})
}

// marking is a call of Mark.
type marking struct {
	visit
	mark driver.Mark
	by   string
}

func (c *marking) Step(r *room.Record, now int64) ([]room.Wake, error) {
	if r.Token != 0 || c.by != "" && (r.Head != c.by || r.Closed <= now/1000) {
		return nil, nil
	}
	r.Token, r.Head, r.Closed = room.MarkToken, c.mark.Name, 0
	if c.mark.Quarantine > 0 {
		r.Closed = now/1000 + 1 + c.mark.Quarantine.Milliseconds()
	}
	return nil, nil
}

// A request with Guard for a key without a known token leaves a probe in the record: a
// random word. The driver then looks at the mark, and asks again. A table loses its data as
// a whole, and a write takes effect once; so if the record still has the probe, no data was
// lost since the mark was seen. However long the process was stopped in between, no later
// look is needed.
const (
	probeMark = "?"    // its name among the marks of a record
	probeLife = 60_000 // in ms; it is then asked for anew
	maxProbes = 64     // of one request: the record and its probe may be removed meanwhile
)

// leaveProbe returns the probe of a record. It adds one if there is none.
func leaveProbe(r *room.Record, now int64) string {
	if m, ok := r.Marks[probeMark]; ok {
		return m.Reason
	}
	if r.Marks == nil {
		r.Marks = make(map[string]room.Mark)
	}
	probe := rand.Text()
	r.Marks[probeMark] = room.Mark{Until: now/1000 + probeLife, Reason: probe}
	return probe
}

// passes reports whether a record still has the probe.
func passes(r *room.Record, probe string) bool {
	return probe != "" && r.Marks[probeMark].Reason == probe
}

// enterMarked acquires a key without a known token, if the mark shows that no data was
// lost. probe is in the record of the key.
func (d *Driver) enterMarked(ctx context.Context, req driver.Request, probe string) (reply driver.Reply, err error) {
	for range maxProbes {
		if err := d.checkMark(ctx); err != nil {
			return driver.Reply{}, err
		}
		if reply, probe, err = d.enter(ctx, req, probe); !errors.Is(err, driver.ErrAmnesia) {
			break
		}
	}
	return reply, err
}

// checkMark refuses while there is no mark, or it is in quarantine.
func (d *Driver) checkMark(ctx context.Context) error {
	mark, ok, err := d.Marked(ctx)
	if err == nil && (!ok || mark.Quarantine > 0) {
		err = driver.ErrAmnesia
	}
	return err
}
