package leasehold

import (
	"fmt"
	"reflect"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/session"
)

// Client takes locks in one store. It is safe for concurrent use; a program
// needs one per store.
type Client struct {
	session *session.Session
	// selective tells that the store does not serve every request.
	selective bool
	cfg       config
	counts    counters
	classes   classes
}

// New returns a client of a store. It takes charge of the driver: Close closes
// it. The options are the defaults of the client's locks, but for
// [WithReentrantOwner], which is one lock's. If an option is refused the error
// matches ErrInvalid, and the driver is the caller's still.
func New(d driver.Driver, opts ...Option) (*Client, error) {
	if v := reflect.ValueOf(d); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("leasehold: nil driver: %w", ErrInvalid)
	}
	cfg, err := defaults().with(opts)
	if err == nil && cfg.reentrantOwner != "" {
		err = fmt.Errorf("reentrant owner %q of a client: it is an option of one lock: %w", cfg.reentrantOwner, ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("leasehold: %w", err)
	}
	cfg.ownPolicy = false // from here on it is a default
	c := &Client{session: session.New(d, cfg.Log, cfg.outage), cfg: cfg}
	_, c.selective = driver.As[driver.Limited](d)
	return c, nil
}

func (c *Client) now() time.Time { return c.session.Now() }

// Close ends the client: waiters get ErrClosed, leases that are held are
// released, at most for their release timeout, and their contexts end with
// ErrClosed. When it returns nothing of the client runs any more, and the
// driver is closed. Further calls do nothing.
func (c *Client) Close() error { return c.session.Close() }
