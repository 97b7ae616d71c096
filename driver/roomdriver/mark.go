package roomdriver

import (
	"context"
	"errors"
	"fmt"
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
	c := reserving{visit: visit{key: markKey}, by: by, life: life}
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
	r.Token, r.Head, r.Closed = markToken, c.mark.Name, 0
	if c.mark.Quarantine > 0 {
		r.Closed = now/1000 + 1 + c.mark.Quarantine.Milliseconds()
	}
	return nil, nil
}

// enterMarked acquires a key without a known token, if the mark shows that no data was
// lost. It reads the mark again before it returns: the process may have been stopped after
// the first read, and the data lost since.
func (d *Driver) enterMarked(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if err := d.checkMark(ctx); err != nil {
		return driver.Reply{}, err
	}
	req.Guard = false
	reply, err := d.enter(ctx, req)
	if err != nil || reply.State != driver.Granted && reply.State != driver.Queued {
		return reply, err
	}
	lost := d.checkMark(ctx)
	if lost == nil {
		return reply, nil
	}
	return driver.Reply{}, d.undo(ctx, req, lost)
}

// undo gives back the grant, and returns cause. The returned error matches
// [driver.ErrUnavailable] only if the grant was undone.
func (d *Driver) undo(ctx context.Context, req driver.Request, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	reply, err := d.Release(ctx, driver.Ref{Key: req.Key, ID: req.ID, Visit: req.Visit})
	if err == nil && reply.State == driver.Busy {
		err = errors.New("another request asked for it, too")
	}
	if err != nil {
		return fmt.Errorf("look at the mark again: %v; undo: %v", cause, err) //nolint:errorlint // a match of their errors would not hold for the request
	}
	return cause
}

// checkMark refuses while there is no mark, or it is in quarantine.
func (d *Driver) checkMark(ctx context.Context) error {
	mark, ok, err := d.Marked(ctx)
	if err == nil && (!ok || mark.Quarantine > 0) {
		err = driver.ErrAmnesia
	}
	return err
}
