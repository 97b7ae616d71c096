package redisroom

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Marked implements [driver.Marker].
func (s *Store) Marked(ctx context.Context) (mark driver.Mark, ok bool, err error) {
	reply, err := s.mark(ctx, "look")
	if err != nil {
		return driver.Mark{}, false, err
	}
	return parseMark(reply)
}

// Reserve implements [driver.Marker].
func (s *Store) Reserve(ctx context.Context, by string, life time.Duration) (bool, error) {
	reply, err := s.mark(ctx, "reserve", by, strconv.FormatInt(max(life.Milliseconds(), 1), 10))
	return err == nil && reply == int64(1), err
}

// Mark implements [driver.Marker].
func (s *Store) Mark(ctx context.Context, mark driver.Mark, by string) error {
	_, err := s.mark(ctx, "mark", strconv.FormatInt(mark.Quarantine.Milliseconds(), 10), mark.Name, by)
	return err
}

func (s *Store) mark(ctx context.Context, args ...string) (any, error) {
	c := newCommand()
	c.word(s.prefix + markKey)
	for _, arg := range args {
		c.word(arg)
	}
	cmd := c.build(s.form(markScript), 1)
	reply, err := s.run(ctx, markScript, cmd)
	cmd.free()
	if err == nil && s.main.Cluster() { // which is known only now
		err = errNoMark
	}
	return reply, err
}

// parseMark reads the answer of lua/mark.lua.
func parseMark(reply any) (mark driver.Mark, ok bool, err error) {
	if _, none := reply.(int64); none {
		return mark, false, nil
	}
	if fields, ok := reply.([]any); ok && len(fields) == 2 {
		left, isLeft := fields[0].(int64)
		name, isName := fields[1].(string)
		if isLeft && isName {
			return driver.Mark{Name: name, Quarantine: millis(left)}, true, nil
		}
	}
	return mark, false, fmt.Errorf("%w: %v", errReply, reply)
}

// errNoMark is returned for a cluster: a script may read one slot only, and one node alone
// may lose its data.
var errNoMark = fmt.Errorf("a cluster has no mark to detect a loss of data: %w", errors.ErrUnsupported)

// guardError returns the error of a request that a cluster refused because of its mark, or
// err.
func (s *Store) guardError(req *driver.Request, err error) error {
	if req.Guard && s.main.Cluster() && strings.HasPrefix(err.Error(), "CROSSSLOT") {
		return errNoMark
	}
	return err
}
