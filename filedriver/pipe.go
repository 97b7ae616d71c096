package filedriver

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"time"
)

// If other programs have used up the user's inotify instances, the mailbox is a named pipe,
// which needs only a file. Hints that do not fit are dropped, as with a full file.

const (
	// pipeChunk is how much is written to a pipe at a time.
	pipeChunk = 4 << 10
	// pipeFull is how much buffered input makes it likely that lines were dropped.
	pipeFull = 32 << 10
)

// pipe replaces the file of a new mailbox by a named pipe, before its id is known to
// others.
func (m *mailbox) pipe() (err error) {
	if err := errors.Join(m.file.Close(), os.Remove(m.path())); err != nil {
		return err
	}
	m.file, err = makePipe(m.path(), m.store.config.mode)
	return err
}

// runPipe delivers hints from a pipe until the store is closed.
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
		m.hear(line)
		if lines.Buffered() > pipeFull {
			_, _ = lines.Discard(lines.Buffered())
			m.store.subs.Resync() // every waiter then asks
		}
	}
}

// writePipe writes lines to a pipe, in chunks that do not mix with those of other
// writers. It drops lines that do not fit.
func writePipe(f *os.File, lines []byte) {
	for len(lines) > 0 {
		end := bytes.LastIndexByte(lines[:min(len(lines), pipeChunk)], '\n') + 1
		if end == 0 {
			return // the line is too long
		}
		if writeNow(f, lines[:end]) != nil {
			return
		}
		lines = lines[end:]
	}
}
