package filedriver

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// heard collects hints.
type heard struct {
	mu    sync.Mutex
	hints []driver.Hint
}

func (h *heard) add(hint driver.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hints = append(h.hints, hint)
}

func (h *heard) count(match func(driver.Hint) bool) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, hint := range h.hints {
		if match(hint) {
			n++
		}
	}
	return n
}

func watch(t *testing.T, s *Driver) (*heard, driver.Subscription) {
	t.Helper()
	var h heard
	sub, err := s.Watch(h.add)
	if err != nil || sub.Address() == "" {
		t.Fatalf("watch: address %q, %v", sub.Address(), err)
	}
	return &h, sub
}

// post sends a hint of a kilobyte to the address of a subscription, as package roomdriver does.
func post(t *testing.T, s *Driver, address, id string) {
	t.Helper()
	mailbox, number, _ := strings.Cut(address, ".")
	hint := driver.Hint{Kind: driver.HintAsk, ID: id, Reason: strings.Repeat("x", 1000)}
	body, err := json.Marshal(map[string]any{"to": number, "hint": hint})
	noError(t, err)
	for _, to := range []string{mailbox, address} {
		noError(t, table{s}.Notify(t.Context(), []roomdriver.Message{{Address: to, Body: string(body)}}))
	}
}

// looking is an option of a store that polls its mailbox every millisecond. So it needs no
// inotify instance: other programs may have used up all instances of the user.
func looking(c *config) {
	c.watch = func() (*fileWatch, error) {
		events, quit := make(chan fsnotify.Event), make(chan struct{})
		var looks sync.WaitGroup
		look := func(path string) {
			var size int64
			for {
				event := fsnotify.Event{Name: path}
				switch info, err := os.Lstat(path); {
				case err != nil:
					event.Op = fsnotify.Remove
				case info.Size() != size:
					event.Op, size = fsnotify.Write, info.Size()
				}
				if event.Op != 0 {
					select {
					case events <- event:
					case <-quit:
						return
					}
				}
				select {
				case <-time.After(time.Millisecond):
				case <-quit:
					return
				}
			}
		}
		return &fileWatch{
			Events: events,
			Add:    func(path string) error { looks.Go(func() { look(path) }); return nil },
			Close:  func() error { close(quit); looks.Wait(); return nil },
		}, nil
	}
}

func TestMailbox_DeliversInOrderAndStaysShort(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, dir, looking), open(t, dir)
	h, sub := watch(t, s)
	const hints = 1200 // more than the mailbox may keep
	for i := range hints {
		post(t, other, sub.Address(), strconv.Itoa(i))
		if i%100 == 99 { // a reader that keeps up
			eventually(t, "the hint arrives, or a resync", func() bool {
				return h.count(func(hint driver.Hint) bool { return hint.ID == strconv.Itoa(i) || hint.Kind == driver.HintResync }) > 0
			})
		}
	}
	info, err := os.Stat(s.tree.path(s.mail.Load().name()))
	if err != nil || info.Size() > maxMailbox {
		t.Errorf("the mailbox has %d bytes, %v", info.Size(), err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last := -1
	for _, hint := range h.hints {
		if n, err := strconv.Atoi(hint.ID); err == nil && n <= last {
			t.Fatalf("hint %d after %d", n, last)
		} else if err == nil {
			last = n
		}
	}
	if !slices.ContainsFunc(h.hints, func(hint driver.Hint) bool { return hint.Kind == driver.HintResync }) {
		t.Error("the mailbox was emptied without a resync")
	}
}

func TestMailbox_OfAStoppedReaderStopsGrowing(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, dir, looking), open(t, dir)
	m, err := s.newMailbox(func(string) {}) // it has no reader
	noError(t, err)
	t.Cleanup(func() { _ = m.close() })
	long := strings.Repeat("x", 10_000)
	for range 200 {
		post(t, other, m.id+".1", long)
	}
	if info, err := os.Stat(m.store.tree.path(m.name())); err != nil || info.Size() > maxMailbox+20_000 {
		t.Errorf("the mailbox has %d bytes, %v", info.Size(), err)
	}
}

func TestMailbox_IgnoresAddressesThatAreNone(t *testing.T) {
	s := open(t, t.TempDir(), looking)
	h, sub := watch(t, s)
	id, _, _ := strings.Cut(sub.Address(), ".")
	for _, address := range []string{"", ".", "../../epoch", "../epoch.1", id, id + ".", id + ".99", "0123456789abcdef.1", "0123456789ABCDEF.1"} {
		post(t, s, address, "x")
	}
	noError(t, os.WriteFile(s.tree.path("wake", id), []byte("nonsense\n{}\n{\"to\":\"99\"}\n"), 0o600))
	post(t, s, sub.Address(), "real")
	eventually(t, "the real hint arrives", func() bool { return h.count(func(hint driver.Hint) bool { return hint.ID == "real" }) == 1 })
	if n := h.count(func(hint driver.Hint) bool { return hint.ID == "x" }); n > 0 {
		t.Errorf("%d hints to invalid addresses", n)
	}
}

func TestMailbox_ABreakReachesTheProcessesOfItsPrefix(t *testing.T) {
	dir := t.TempDir()
	own := []*Driver{open(t, dir, looking, WithPrefix("one:")), open(t, dir, looking, WithPrefix("one:"))}
	stranger := open(t, dir, looking, WithPrefix("two:"))
	broken := func(hint driver.Hint) bool {
		return hint.Kind == driver.HintBroken && hint.Key == "k" && hint.ID == "holder"
	}
	var hears []*heard
	for _, s := range own {
		h, _ := watch(t, s)
		hears = append(hears, h)
	}
	other, sub := watch(t, stranger)
	grant(t, own[0], driver.Request{Key: "k", ID: "holder"})
	if reply, err := own[0].Break(t.Context(), "k", "holder", "reason"); err != nil || reply.State != driver.Released {
		t.Fatalf("%+v, %v", reply, err)
	}
	post(t, own[0], sub.Address(), "later")
	eventually(t, "all hints have arrived", func() bool {
		return hears[0].count(broken) == 1 && hears[1].count(broken) == 1 && other.count(func(hint driver.Hint) bool { return hint.ID == "later" }) == 1
	})
	if other.count(broken) > 0 || hears[0].count(broken) > 1 {
		t.Errorf("%v of the breaks reached another prefix, and %d the process itself", other.count(broken), hears[0].count(broken))
	}
}

func TestMailbox_RemovedByOthersLeavesPolling(t *testing.T) {
	s := open(t, t.TempDir(), looking)
	_, sub := watch(t, s)
	noError(t, os.Remove(s.tree.path(s.mail.Load().name())))
	eventually(t, "the address is withdrawn", func() bool { return sub.Address() == "" })
}

// The kernel unlocks the files of a process that dies.
func TestMailbox_OfAProcessGoesWithIt(t *testing.T) {
	dir := t.TempDir()
	s, alive, dead := open(t, dir), open(t, dir, looking), open(t, dir, looking)
	h, sub := watch(t, alive)
	watch(t, dead)
	grant(t, s, driver.Request{Key: "k", ID: "holder"})
	waiter := driver.Request{Key: "k", ID: "waiter", TTL: time.Minute, TicketTTL: time.Minute, ConfirmWindow: time.Minute, HintAddress: sub.Address()}
	if reply, err := alive.Acquire(t.Context(), waiter); err != nil || reply.State != driver.Queued {
		t.Fatalf("%+v, %v; want it queued", reply, err)
	}
	noError(t, dead.mail.Load().liveness.Unlock())
	s.sweep()
	if left := files(t, s.tree.path("wake")); len(left) != 2 {
		t.Errorf("mailboxes: %v; want that of the living process, and its sign of life", left)
	}
	release(t, s, "k", "holder")
	eventually(t, "the living process is woken", func() bool {
		return h.count(func(hint driver.Hint) bool { return hint.Kind == driver.HintGranted && hint.ID == "waiter" }) == 1
	})
	closeStore(t, alive)
	if left := files(t, s.tree.path("wake")); len(left) > 0 {
		t.Errorf("after close: %v", left)
	}
}

// Without a watch, Watch names the cause, and the next call tries again.
func TestWatch_HR_G4_WithoutAnInotifyInstanceNamesTheCause(t *testing.T) {
	fails := true
	s := open(t, t.TempDir(), looking, func(c *config) {
		works := c.watch
		c.watch = func() (*fileWatch, error) {
			if fails {
				return nil, os.NewSyscallError("inotify_init1", syscall.EMFILE)
			}
			return works()
		}
	})
	sub, err := s.Watch(func(driver.Hint) {})
	if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, syscall.EMFILE) {
		t.Fatalf("%v, %v; want an error that names the cause", sub, err)
	}
	if left := files(t, s.tree.path("wake")); len(left) > 0 {
		t.Errorf("the failed watch left %v", left)
	}
	fails = false
	watch(t, s)
}
