package filedriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// machine is what the store knows of the machine it runs on.
type machine struct {
	// boot names the present run of the operating system.
	boot string
	// elapsed is the time since an instant of this boot, the same for all
	// processes. It counts suspension and is not set by anybody.
	elapsed func() time.Duration
	// wall is the wall clock.
	wall func() time.Time
}

// clock is the store's clock: µs since the Unix epoch, as the wall clock had it
// when the first process of this boot opened the directory, and counted on
// from there by the machine's time since boot. It never steps within a boot.
//
// Over boots it never goes back behind a token: the epoch file holds a bound,
// renewed ahead of time, that no token reaches, and the next boot's clock starts
// there if the wall clock is behind it.
type clock struct {
	machine  machine
	path     string
	mode     fs.FileMode
	lock     *fileLock
	patience time.Duration
	origin   atomic.Int64 // µs; the reading when elapsed was 0
	reserved atomic.Int64 // µs; the bound as this process knows it
}

// epoch is the content of the epoch file.
type epoch struct {
	Version  int    `json:"leasehold"`
	Boot     string `json:"boot"`
	Origin   int64  `json:"originUs"`
	Reserved int64  `json:"reservedUs"`
	// Mark is since when guarded requests are served; 0 without a mark.
	Mark int64 `json:"markUs,omitempty"`
	// Name is what the mark says.
	Name string `json:"markName,omitempty"`
	// For is for whom the directory is reserved while it has no mark, until Until.
	For   string `json:"reservedFor,omitempty"`
	Until int64  `json:"reservedForUs,omitempty"`
}

const (
	// version is the format of the directory.
	version = 1
	// margin is how far ahead tokens are reserved: one synced write of the
	// epoch file per margin, and at most so much lead over the wall clock
	// gained by a reboot.
	margin = int64(10 * time.Minute / time.Microsecond)
	// maxToken is what a token stays below, so that a float64 holds it.
	maxToken = int64(1) << 53
)

func (c *clock) elapsed() int64 { return c.machine.elapsed().Microseconds() }

// read returns the clock's reading. Use it where no token is minted.
func (c *clock) read() int64 { return c.origin.Load() + c.elapsed() }

// now returns the clock's reading, after making sure that a token of that
// value is reserved.
func (c *clock) now(ctx context.Context) (int64, error) {
	now := c.read()
	if now < c.reserved.Load() {
		return now, nil
	}
	if err := c.extend(ctx, now); err != nil {
		return 0, err
	}
	return c.read(), nil
}

// cover makes sure that token is reserved, which a token is that the clock
// seeded, but not one that a caller raised.
func (c *clock) cover(ctx context.Context, token int64) error {
	if token < c.reserved.Load() {
		return nil
	}
	before := c.origin.Load()
	if err := c.extend(ctx, token); err != nil {
		return err
	}
	if c.origin.Load() != before {
		return fmt.Errorf("%s was replaced while in use: %w", c.path, driver.ErrUnavailable)
	}
	return nil
}

// forget makes the next call look at the epoch file.
func (c *clock) forget() { c.reserved.Store(0) }

// extend reserves the tokens up to atLeast and some more.
func (c *clock) extend(ctx context.Context, atLeast int64) error {
	return c.update(ctx, func(e *epoch) (bool, error) {
		if err := c.own(e); err != nil {
			return false, err
		}
		need := max(atLeast, e.Origin+c.elapsed())
		if e.Reserved > need {
			return false, nil // another process was here first
		}
		e.Reserved = need + margin
		return true, nil
	})
}

// own makes sure that the epoch is that of this boot. If its file was removed we
// still know its origin.
func (c *clock) own(e *epoch) error {
	if *e == (epoch{}) {
		*e = epoch{Version: version, Boot: c.machine.boot, Origin: c.origin.Load()}
	}
	if e.Boot != c.machine.boot {
		return fmt.Errorf("%s is of another boot: another machine uses the directory: %w", c.path, driver.ErrUnavailable)
	}
	return nil
}

// begin joins the clock of this boot, or starts it. alone tells whether no
// process uses the directory.
func (c *clock) begin(ctx context.Context, alone func() error) error {
	return c.update(ctx, func(e *epoch) (bool, error) {
		if e.Boot == c.machine.boot {
			return false, nil
		}
		if c.runs(e) {
			return false, fmt.Errorf("%s is of the boot %q, this process sees %q, and yet the clock of that boot runs on here: let all containers that use the directory see the host's /proc/sys/kernel/random/boot_id, or remove the directory if nobody uses it: %w",
				c.path, e.Boot, c.machine.boot, driver.ErrUnavailable)
		}
		if err := alone(); err != nil {
			return false, err
		}
		now := max(c.machine.wall().UnixMicro(), e.Reserved, 1)
		if now >= maxToken-margin {
			return false, fmt.Errorf("the machine's clock says %v, which is too far in the future to start from: set it: %w",
				c.machine.wall().Format(time.RFC3339), driver.ErrUnavailable)
		}
		*e = epoch{Version: version, Boot: c.machine.boot, Origin: now - c.elapsed(), Reserved: now + margin}
		return true, nil
	})
}

// sameBoot is how far the wall clock and the time since boot may have moved apart in
// one boot. Two boots of a machine begin further apart.
const sameBoot = int64(3 * time.Second / time.Microsecond)

// runs reports whether the clock of an epoch still runs here: it agrees with the wall
// clock, which the clock of an earlier boot does not, since that one began earlier. Its
// leases are not over then, whatever the boot is called here.
func (c *clock) runs(e *epoch) bool {
	if e.Boot == "" {
		return false
	}
	apart := e.Origin + c.elapsed() - c.machine.wall().UnixMicro()
	return -sameBoot < apart && apart < sameBoot
}

// update changes the epoch file under its lock, and takes over what it says.
func (c *clock) update(ctx context.Context, change func(*epoch) (bool, error)) error {
	if err := c.lock.lock(ctx, c.patience); err != nil {
		return err
	}
	defer c.lock.unlock()
	e, err := c.load()
	if err != nil {
		return err
	}
	changed, err := change(&e)
	if err != nil {
		return err
	}
	if changed {
		if err := c.save(e); err != nil {
			return unavailable("write epoch", err)
		}
	}
	c.origin.Store(e.Origin)
	c.reserved.Store(e.Reserved)
	return nil
}

// readPlain reads a file that is no symbolic link.
func readPlain(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func (c *clock) load() (epoch, error) {
	var e epoch
	raw, err := readPlain(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err != nil {
		return e, unavailable("read epoch", err)
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return e, damaged(c.path, err.Error())
	}
	if e.Version != version {
		return e, damaged(c.path, fmt.Sprintf("format %d, where %d is known", e.Version, version))
	}
	return e, nil
}

// save syncs: the file must outlive a power failure.
func (c *clock) save(e epoch) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	next := c.path + ".draft"
	if err := writeFile(next, raw, c.mode, true); err != nil {
		return err
	}
	if err := os.Rename(next, c.path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(c.path))
}

// syncDir makes a rename durable. Windows knows no such thing.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return oneline.Join(d.Sync(), d.Close())
}
