package cli

import (
	"io"
	"sync/atomic"
	"time"
)

// logQueue is a writer of records that never blocks: a goroutine passes them to another
// writer. While logQueueSize records wait, because standard error is not read, it drops further
// records.
type logQueue struct {
	to      io.Writer
	records chan []byte
	dropped atomic.Int64
	note    func(dropped int64) // writes a record about them to the same writer
	ending  chan struct{}       // closed when no more records are expected
	ended   chan struct{}
}

const (
	logQueueSize = 1024
	// lastRecords is how long the end of the service waits for records to be written.
	lastRecords = time.Second
)

func newLogQueue(to io.Writer, note func(dropped int64)) *logQueue {
	q := &logQueue{
		to: to, records: make(chan []byte, logQueueSize), note: note,
		ending: make(chan struct{}), ended: make(chan struct{}),
	}
	go q.run()
	return q
}

// Write implements [io.Writer]. It drops records after close.
func (q *logQueue) Write(record []byte) (int, error) {
	select {
	case q.records <- append([]byte(nil), record...):
	default:
		q.dropped.Add(1)
	}
	return len(record), nil
}

func (q *logQueue) run() {
	defer close(q.ended)
	for ending := q.ending; ending != nil; {
		select {
		case record := <-q.records:
			q.pass(record)
		case <-ending:
			ending = nil
		}
	}
	for len(q.records) > 0 { // they were written before the end
		q.pass(<-q.records)
	}
}

func (q *logQueue) pass(record []byte) {
	_, _ = q.to.Write(record) // there is nowhere to report an error
	if n := q.dropped.Swap(0); n > 0 {
		q.note(n)
	}
}

// close waits for the records to be written, for lastRecords at most.
func (q *logQueue) close() {
	close(q.ending)
	select {
	case <-q.ended:
	case <-time.After(lastRecords):
	}
}
