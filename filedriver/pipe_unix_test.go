//go:build unix

package filedriver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/internal/room"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// unwatched is a user who has no inotify instances left.
func unwatched(c *config) {
	c.watch = func() (*fileWatch, error) { return nil, os.NewSyscallError("inotify_init1", syscall.EMFILE) }
}

func TestWatch_HR_G4_HintsArriveWithoutAnInotifyInstance(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, dir, unwatched), open(t, dir)
	h, sub := watch(t, s)
	const hints = 3000
	for i := range hints {
		other.deliver([]room.Wake{wake(sub.Address(), strconv.Itoa(i))})
		if i%50 == 49 { // a reader that keeps up
			eventually(t, "the hint arrives, or a resync", func() bool {
				return h.count(func(h driver.Hint) bool { return h.ID == strconv.Itoa(i) || h.Kind == driver.HintResync }) > 0
			})
		}
	}
	if n := h.count(func(h driver.Hint) bool { return h.Kind == driver.HintAsk }); n != hints {
		t.Errorf("%d of %d hints arrived", n, hints)
	}
	for i, hint := range h.hints {
		if hint.ID != strconv.Itoa(i) {
			t.Fatalf("hint %d is of %s", i, hint.ID)
		}
	}
}

func TestConformance_HR_G4_WithoutAnInotifyInstance(t *testing.T) {
	skip.Nightly(t, "make test plays the same rows with an inotify instance")
	dir, f := t.TempDir(), newFake()
	drivertest.Run(t, drivertest.Config{
		Open: func(t testing.TB) driver.Driver {
			s, err := Open(dir, unwatched, f.option())
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Advance: f.advance,
	})
}

// A waiter that was stopped has more hints before it than the pipe holds: it is told to
// ask, and those who send do not wait for it.
func TestWatch_HR_G4_APipeThatIsFullStopsNobody(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, dir, unwatched), open(t, dir)
	release, entered := make(chan bool), make(chan bool, 1)
	var h heard
	sub, err := s.Watch(func(hint driver.Hint) {
		select {
		case entered <- true:
		default:
		}
		<-release
		h.add(hint)
	})
	if err != nil {
		t.Fatal(err)
	}
	many := make([]room.Wake, 5000)
	for i := range many {
		many[i] = wake(sub.Address(), strconv.Itoa(i))
	}
	other.deliver(many[:1])
	<-entered
	s.mu.Lock() // nothing is received
	other.deliver(many)
	other.deliver(many)
	s.mu.Unlock()
	close(release)
	eventually(t, "all are told to ask", func() bool {
		return h.count(func(h driver.Hint) bool { return h.Kind == driver.HintResync }) > 0
	})
	eventually(t, "hints arrive again", func() bool {
		other.deliver([]room.Wake{wake(sub.Address(), "after")}) // the pipe may be full still
		return h.count(func(h driver.Hint) bool { return h.ID == "after" }) > 0
	})
}

// Who can have neither learns it, and so those who read the log; later it is tried again.
func TestWatch_HR_G4_IsRefusedWithAReasonAndTriedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	fails := true
	s := open(t, dir, unwatched, func(c *config) {
		none := c.watch
		c.watch = func() (*fileWatch, error) {
			if !fails {
				return newFileWatch()
			}
			// Nor can a pipe be made where there is no directory for it.
			return nil, errors.Join(func() error { _, err := none(); return err }(), os.RemoveAll(filepath.Join(dir, "wake")))
		}
	})
	sub, err := s.Watch(func(driver.Hint) {})
	if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, syscall.EMFILE) {
		t.Fatalf("%v, %v; want an error that says why", sub, err)
	}
	fails = false
	if err := os.Mkdir(filepath.Join(dir, "wake"), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	watch(t, s)
}
