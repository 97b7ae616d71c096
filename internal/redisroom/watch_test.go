package redisroom

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// refusing is a client whose server refuses subscriptions.
type refusing struct {
	Client
	err   error
	tries int
}

func (c *refusing) Listen(context.Context, []string, func(), func(string)) error {
	c.tries++
	return c.err
}

func (*refusing) Close() error { return nil }

// A process that holds locks listens for as long as it lives, whether or not it may.
func TestWatch_IsTriedSeldomWhereTheServerRefusesIt(t *testing.T) {
	for name, row := range map[string]struct {
		err         error
		least, most int // tries within ten minutes
	}{
		"no right":      {ReplyError("NOPERM this user has no permissions to run the 'subscribe' command"), 50, 70},
		"no connection": {errors.New("connection refused"), 550, 650},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &refusing{err: row.err}
				s := New(c, c, Options{})
				sub, err := s.Watch(func(driver.Hint) {})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if c.tries < row.least || c.tries > row.most {
					t.Errorf("tried %d times, want %d to %d", c.tries, row.least, row.most)
				}
				if sub.Address() != "" {
					t.Errorf("address %q", sub.Address())
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
