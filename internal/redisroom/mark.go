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
func (s *Store) Marked(ctx context.Context) (quarantine time.Duration, ok bool, err error) {
	return s.mark(ctx)
}

// Mark implements [driver.Marker].
func (s *Store) Mark(ctx context.Context, quarantine time.Duration) error {
	_, _, err := s.mark(ctx, strconv.FormatInt(quarantine.Milliseconds(), 10))
	return err
}

func (s *Store) mark(ctx context.Context, args ...string) (time.Duration, bool, error) {
	cmd := append([]string{evalsha, s.form(markScript).sha, "1", s.prefix + markKey}, args...)
	reply, err := s.run(ctx, markScript, cmd)
	if err != nil {
		return 0, false, err
	}
	if s.main.Cluster() { // which is known only now
		return 0, false, errNoMark
	}
	left, ok := reply.(int64)
	if !ok {
		return 0, false, fmt.Errorf("%w: %v", errReply, reply)
	}
	return millis(left), left >= 0, nil
}

// errNoMark is the answer of a cluster, where a script may look at one slot
// only, and where a node may lose its data without the others.
var errNoMark = fmt.Errorf("a cluster has no mark by which it could tell that it has lost its data: %w", errors.ErrUnsupported)

// guardError is the error of a request that a cluster did not take because of
// its mark, or err.
func (s *Store) guardError(req *driver.Request, err error) error {
	if req.Guard && s.main.Cluster() && strings.HasPrefix(err.Error(), "CROSSSLOT") {
		return errNoMark
	}
	return err
}
