package filedriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// machine describes the machine on which the store runs.
type machine struct {
	// boot names the present run of the operating system.
	boot string
	// elapsed returns the time since an instant of this boot, the same for all processes.
	// It includes suspension, and cannot be set.
	elapsed func() time.Duration
	// wall is the wall clock.
	wall func() time.Time
}

// bootClock is the store's clock: µs since the Unix epoch, as the wall clock had it when
// the first process of this boot opened the directory, and from there on by the machine's
// time since boot. It never steps within a boot.
//
// Over boots it never goes back behind a token. The epoch file holds a bound that no
// token reaches, and that is raised ahead of time; the next boot's clock starts there if
// the wall clock is behind it.
type bootClock struct {
	machine  machine
	tree     *tree
	path     string // of the epoch file
	lock     *fileLock
	timeout  time.Duration
	origin   atomic.Int64 // µs; the reading when elapsed was 0
	reserved atomic.Int64 // µs; this process's copy of the bound
	low      atomic.Int64 // µs; when runsLow last reported true
	stuck    atomic.Int64 // µs; when the epoch could last not be had in time
	known    atomic.Value // fs.FileInfo of an epoch file with this origin
}

// epoch is the content of the epoch file.
type epoch struct {
	Version  int    `json:"leasehold"`
	Boot     string `json:"boot"`
	Origin   int64  `json:"originUs"`
	Reserved int64  `json:"reservedUs"`
	// Mark is the time from which guarded requests are served; 0 without a mark.
	Mark int64 `json:"markUs,omitempty"`
	// Name is the name of the mark.
	Name string `json:"markName,omitempty"`
	// For is the process for which the directory is reserved until Until, before it has a
	// mark.
	For   string `json:"reservedFor,omitempty"`
	Until int64  `json:"reservedForUs,omitempty"`
}

const (
	// version is the format of the directory.
	version = 1
	// margin is how far ahead tokens are reserved. It costs one synced write of the epoch
	// file per margin, and a reboot moves the clock ahead of the wall clock by at most as
	// much.
	margin = int64(10 * time.Minute / time.Microsecond)
	// If a call that has a shard has waited for the epoch for half the timeout, calls
	// within the next stuckFor wait for stuckTimeout only.
	stuckFor     = 2 * time.Second
	stuckTimeout = 20 * time.Millisecond
	// maxToken bounds tokens, so that a float64 holds them exactly.
	maxToken = int64(1) << 53
)

func (c *bootClock) elapsed() int64 { return c.machine.elapsed().Microseconds() }

// read returns the clock's reading, for callers that mint no token.
func (c *bootClock) read() int64 { return c.origin.Load() + c.elapsed() }

// now returns the clock's reading. If the directory was removed while in use, and made
// again by a process with another clock, the records follow that process's clock, so now
// adopts it. Otherwise now does not write: renewals continue when the disk is full.
func (c *bootClock) now(ctx context.Context) (int64, error) {
	if !c.upToDate() {
		if err := c.reserve(ctx, c.timeout, c.read()); err != nil {
			return 0, err
		}
	}
	return c.read(), nil
}

// upToDate reports whether the epoch file has the clock of this process. It takes no lock:
// another process may have been stopped while it reserves tokens.
func (c *bootClock) upToDate() bool {
	info, err := os.Lstat(c.path) // the directory itself is no link
	if err != nil {
		return false
	}
	known, ok := c.known.Load().(fs.FileInfo)
	if ok && os.SameFile(info, known) && info.ModTime().Equal(known.ModTime()) {
		return true
	}
	e, err := c.load()
	if err != nil || e.Boot != c.machine.boot || e.Origin != c.origin.Load() {
		return false
	}
	if e.Reserved < c.reserved.Load() {
		c.reserved.Store(e.Reserved) // the file was made again by a process with a smaller bound
	}
	c.known.Store(info) // of before the reading: a file that has come since is seen by the next call
	return true
}

// runsLow reports whether half of the tokens reserved in advance are used, at most once a
// second.
func (c *bootClock) runsLow(token int64) bool {
	if token < c.reserved.Load()-margin/2 {
		return false
	}
	now, said := c.elapsed(), c.low.Load()
	return (said == 0 || now-said >= time.Second.Microseconds()) && c.low.CompareAndSwap(said, now)
}

// reserveAhead reserves a margin of tokens beyond token, unless more than half of it is.
func (c *bootClock) reserveAhead(ctx context.Context, token int64) error {
	return c.update(ctx, func(e *epoch) (bool, error) {
		if err := c.checkBoot(e); err != nil {
			return false, err
		}
		from := max(token, e.Origin+c.elapsed())
		if e.Reserved-margin/2 > from {
			return false, nil
		}
		e.Reserved = from + margin
		return true, nil
	})
}

// reserveToken reserves token, which has not been returned to any caller. The caller has
// the lock of a shard, which blocks renewals: if another process keeps the epoch, only one
// call at a time waits for it, and leaves time for renewals.
func (c *bootClock) reserveToken(ctx context.Context, token int64) error {
	if token < c.reserved.Load() {
		return nil
	}
	before := c.origin.Load()
	patience, last := c.timeout/2, c.stuck.Load()
	if last > 0 && c.elapsed()-last < stuckFor.Microseconds() {
		patience = min(patience, stuckTimeout)
	}
	err := c.reserve(ctx, patience, token)
	if errors.Is(err, errTaken) && ctx.Err() == nil {
		c.stuck.Store(c.elapsed())
	}
	if err != nil {
		return err
	}
	if c.origin.Load() != before {
		return fmt.Errorf("%s was replaced while in use: %w", c.path, driver.ErrUnavailable)
	}
	return nil
}

// reserve reserves the tokens up to atLeast, and a margin.
func (c *bootClock) reserve(ctx context.Context, patience time.Duration, atLeast int64) error {
	return c.updateWithin(ctx, patience, func(e *epoch) (bool, error) {
		if err := c.checkBoot(e); err != nil {
			return false, err
		}
		if e.Reserved > atLeast {
			return false, nil // another process has reserved them
		}
		e.Reserved = max(atLeast, e.Origin+c.elapsed()) + margin
		return true, nil
	})
}

// checkBoot refuses an epoch of another boot. If the file was removed, it restores the
// epoch, whose origin this process has in memory.
func (c *bootClock) checkBoot(e *epoch) error {
	if *e == (epoch{}) {
		*e = epoch{Version: version, Boot: c.machine.boot, Origin: c.origin.Load()}
	}
	if e.Boot != c.machine.boot {
		return fmt.Errorf("%s is of another boot: another machine uses the directory: %w", c.path, driver.ErrUnavailable)
	}
	return nil
}

// start joins the clock of this boot, or starts it. alone checks that no process uses the
// directory.
func (c *bootClock) start(ctx context.Context, alone func() error) error {
	return c.update(ctx, func(e *epoch) (bool, error) {
		if e.Boot == c.machine.boot {
			return false, nil
		}
		if c.stillRuns(e) {
			return false, fmt.Errorf("%s is of the boot %q, this process sees %q, but the clock of that boot still runs: mount the host's /proc/sys/kernel/random/boot_id in all containers that use the directory, or remove the directory if it is not in use: %w",
				c.path, e.Boot, c.machine.boot, driver.ErrUnavailable)
		}
		if err := alone(); err != nil {
			return false, err
		}
		now := max(c.machine.wall().UnixMicro(), e.Reserved, 1)
		if now >= maxToken-margin {
			return false, fmt.Errorf("the machine's clock is at %v, too far in the future: set it: %w",
				c.machine.wall().Format(time.RFC3339), driver.ErrUnavailable)
		}
		*e = epoch{Version: version, Boot: c.machine.boot, Origin: now - c.elapsed(), Reserved: now + margin}
		return true, nil
	})
}

// maxClockGap is how far the wall clock and the time since boot may move apart in one
// boot. Two boots of a machine begin further apart.
const maxClockGap = int64(3 * time.Second / time.Microsecond)

// stillRuns reports whether the clock of an epoch still runs on this machine: it then
// agrees with the wall clock. The clock of an earlier boot does not, since that boot
// began earlier. If it runs, its leases are still valid, despite the different boot id.
func (c *bootClock) stillRuns(e *epoch) bool {
	if e.Boot == "" {
		return false
	}
	apart := e.Origin + c.elapsed() - c.machine.wall().UnixMicro()
	return -maxClockGap < apart && apart < maxClockGap
}

// update changes the epoch file under its lock, and loads its values.
func (c *bootClock) update(ctx context.Context, change func(*epoch) (bool, error)) error {
	return c.updateWithin(ctx, c.timeout, change)
}

func (c *bootClock) updateWithin(ctx context.Context, patience time.Duration, change func(*epoch) (bool, error)) error {
	if err := c.lock.lock(ctx, patience); err != nil {
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
	if info, err := c.tree.lstat(epochFile); err == nil {
		c.known.Store(info)
	}
	return nil
}

func (c *bootClock) load() (epoch, error) {
	var e epoch
	f, err := c.tree.openFile(epochFile, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err != nil {
		return e, unavailable("read epoch", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(f)
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

// save writes and syncs the epoch file, which has to survive a power failure.
func (c *bootClock) save(e epoch) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	next := epochFile + ".draft"
	if err := c.tree.writeFile(next, raw, true); err != nil {
		return err
	}
	if err := c.tree.rename(next, epochFile); err != nil {
		return err
	}
	return c.tree.sync()
}

// epochFile is the name of the epoch file.
const epochFile = "epoch"
