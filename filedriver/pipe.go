package filedriver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"time"
)

// Where the system watches no more files, because the user's inotify instances are
// used up by other programs, the mailbox is a named pipe. It needs nothing but a file.
// What does not fit into it is dropped, as in a file that is full.

const (
	// whole is how much is written to a pipe in one piece.
	whole = 4 << 10
	// pipeFull is how much is read at once from a pipe of which some may have been
	// dropped.
	pipeFull = 32 << 10
)

// pipe makes a pipe of the mailbox, of which nobody knows yet.
func (m *mailbox) pipe() (err error) {
	if err := errors.Join(m.file.Close(), os.Remove(m.path())); err != nil {
		return err
	}
	m.file, err = makePipe(m.path(), m.store.config.mode)
	return err
}

// runPipe delivers what arrives until the store is closed.
func (m *mailbox) runPipe() {
	m.store.work.Go(func() {
		<-m.store.closed
		_ = m.file.SetReadDeadline(time.Now())
	})
	lines := bufio.NewReaderSize(m.file, 2*pipeFull)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
		var l letter
		if json.Unmarshal(line, &l) == nil {
			m.store.receive(l)
		}
		if lines.Buffered() > pipeFull {
			_, _ = lines.Discard(lines.Buffered())
			m.store.resync() // by which everybody asks
		}
	}
}

// pour writes lines to a pipe, as many at a time as do not mix with those of others.
// Those that do not fit are dropped.
func pour(f *os.File, lines []byte) {
	for len(lines) > 0 {
		end := bytes.LastIndexByte(lines[:min(len(lines), whole)], '\n') + 1
		if end == 0 {
			return // a line that is too long
		}
		if writeNow(f, lines[:end]) != nil {
			return
		}
		lines = lines[end:]
	}
}
