package filedriver

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fsnotify/fsnotify"
	"github.com/gofrs/flock"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// mailbox is the file to which other processes append hints for this one, each a message of package
// roomdriver on a line. A reader of another version ignores fields that it does not know, and asks at
// its next poll at the latest. A second file is
// locked as long as the process lives, so that other processes can recognize and remove
// the mailbox of a killed process.
type mailbox struct {
	store    *Driver
	id       string
	liveness *flock.Flock
	file     *os.File
	watcher  *fileWatch
	receive  func(body string)
	read     int64       // offset behind the last hint delivered
	broken   atomic.Bool // the file is gone
	work     sync.WaitGroup
}

// livenessSuffix ends the name of the file that is locked while the mailbox's process
// lives.
const livenessSuffix = ".lock"

const (
	// truncateAt is the length at which the owner empties its mailbox.
	truncateAt = 256 << 10
	// maxMailbox is the length at which senders stop appending: the owner is stopped or
	// dead.
	maxMailbox = 1 << 20
)

// fileWatch reports changes of files, as an [fsnotify.Watcher] does. Tests can replace it
// without using resources of the system.
type fileWatch struct {
	Events <-chan fsnotify.Event
	Errors <-chan error
	Add    func(path string) error
	Close  func() error
}

func newFileWatch() (*fileWatch, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &fileWatch{w.Events, w.Errors, w.Add, w.Close}, nil
}

// Listen implements [roomdriver.Listener]: it makes the mailbox of the process.
func (t table) Listen(receive func(body string)) (driver.Subscription, error) {
	m, err := t.newMailbox(receive)
	if errors.Is(err, driver.ErrClosed) {
		return nil, driver.ErrClosed
	} else if err != nil {
		return nil, unavailable("wake-ups", err)
	}
	t.mail.Store(m)
	m.work.Go(m.run)
	return m, nil
}

// newMailbox makes a mailbox and watches it.
func (s *Driver) newMailbox(receive func(body string)) (*mailbox, error) {
	var id [8]byte
	_, _ = crand.Read(id[:])
	m := &mailbox{store: s, id: hex.EncodeToString(id[:]), receive: receive}
	err := m.create()
	if err == nil {
		err = m.watch()
	}
	if err != nil {
		return nil, oneline.Join(err, m.close())
	}
	return m, nil
}

// Address implements [driver.Subscription].
func (m *mailbox) Address() string {
	if m.broken.Load() {
		return ""
	}
	return m.id
}

func mailboxID(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == 8 && strings.ToLower(id) == id
}

func (m *mailbox) name() string { return filepath.Join("wake", m.id) }

// create makes the files under the lock that keeps sweeps from seeing them half made.
func (m *mailbox) create() error {
	ctx, cancel := m.store.bounded()
	defer cancel()
	if err := m.store.mailboxLock.lock(ctx, m.store.config.timeout); err != nil {
		return err
	}
	defer m.store.mailboxLock.unlock()
	m.liveness = m.store.tree.newFlock(m.name() + livenessSuffix)
	if ok, err := m.liveness.TryLock(); err != nil || !ok {
		return fmt.Errorf("lock %s: %w", m.liveness.Path(), oneline.Join(err, driver.ErrUnavailable))
	}
	var err error
	m.file, err = m.store.tree.makeFile(m.name())
	return err
}

func (m *mailbox) watch() error {
	w, err := m.store.config.watch()
	if err != nil {
		return err
	}
	m.watcher = w
	return w.Add(m.store.tree.path(m.name()))
}

// run delivers hints until the store is closed.
func (m *mailbox) run() {
	for {
		select {
		case <-m.store.closed:
			return
		case event, ok := <-m.watcher.Events:
			if !ok {
				return
			}
			if !event.Has(fsnotify.Write) {
				_, err := m.store.tree.lstat(m.name())
				m.broken.Store(err != nil)
			}
			m.drain()
		case _, ok := <-m.watcher.Errors:
			if !ok {
				return
			}
			m.drain() // events were lost, but hints are in the file
		}
	}
}

// drain delivers the hints that have arrived, and empties the file when it has grown
// long.
//
// A hint that is appended between the last read and the truncation is lost. That does no
// harm: after the truncation every waiter is asked to check, and the record held the
// change before its hint was sent.
func (m *mailbox) drain() {
	raw, _ := io.ReadAll(io.NewSectionReader(m.file, m.read, maxMailbox+truncateAt))
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
	m.read += int64(len(whole))
	for line := range bytes.Lines(whole) {
		m.receive(string(line))
	}
	if m.read < truncateAt {
		return
	}
	if err := m.file.Truncate(0); err == nil {
		m.read = 0
	}
	m.receive("")
}

// Close implements [driver.Subscription]. The mailbox is closed with its table.
func (m *mailbox) Close() error { return nil }

// close removes the mailbox. It waits for a delivery under way.
func (m *mailbox) close() error {
	m.work.Wait()
	var errs []error
	if m.watcher != nil {
		errs = append(errs, m.watcher.Close())
	}
	if m.file != nil {
		errs = append(errs, m.file.Close(), m.store.tree.remove(m.name()))
	}
	if m.liveness != nil {
		errs = append(errs, m.liveness.Close(), m.store.tree.remove(m.name()+livenessSuffix))
	}
	for i, err := range errs {
		if errors.Is(err, fs.ErrNotExist) {
			errs[i] = nil
		}
	}
	return oneline.Join(errs...)
}

// Notify implements [roomdriver.Notifier]. The hints for one mailbox are one write, so that lines of
// several writers do not mix.
func (t table) Notify(_ context.Context, messages []roomdriver.Message) error {
	lines := make(map[string]string)
	mail := t.mail.Load()
	for _, m := range messages {
		ids := []string{m.Address}
		if m.Address == roomdriver.Everybody {
			ids = t.mailboxes()
		}
		for _, id := range ids {
			switch own := mail != nil && mail.id == id; {
			case own && m.Address == id: // its file has been removed
				mail.receive(m.Body)
			case !own && mailboxID(id):
				lines[id] += m.Body + "\n"
			}
		}
	}
	for id, text := range lines {
		t.send(id, text)
	}
	return nil
}

// send appends hints to the mailbox of another process. It drops hints that cannot be
// delivered: the owner polls.
func (s *Driver) send(id, lines string) {
	f, err := s.tree.openFile(filepath.Join("wake", id), os.O_WRONLY|os.O_APPEND|noWait)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() >= maxMailbox {
		return
	}
	_, _ = f.WriteString(lines)
}

// mailboxes returns the ids of all existing mailboxes.
func (s *Driver) mailboxes() (ids []string) {
	entries, _ := s.tree.entries("wake")
	for _, entry := range entries {
		if mailboxID(entry.Name()) {
			ids = append(ids, entry.Name())
		}
	}
	return ids
}

// sweepMailboxes removes mailboxes of dead processes, whose liveness file can be locked.
func (s *Driver) sweepMailboxes() (removed int) {
	if err := s.mailboxLock.lock(context.Background(), briefTimeout); err != nil {
		return 0
	}
	defer s.mailboxLock.unlock()
	entries, _ := s.tree.entries("wake")
	if len(entries) > sweepFiles {
		from := rand.IntN(len(entries) - sweepFiles)
		entries = entries[from : from+sweepFiles]
	}
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), livenessSuffix)
		if ok && mailboxID(id) && s.removeDeadMailbox(id) {
			removed++
		}
	}
	return removed
}

func (s *Driver) removeDeadMailbox(id string) bool {
	name := filepath.Join("wake", id)
	alive := s.tree.newFlock(name + livenessSuffix)
	if ok, err := alive.TryLock(); err != nil || !ok {
		return false
	}
	_ = s.tree.remove(name)
	_ = alive.Close()
	return s.tree.remove(name+livenessSuffix) == nil
}
