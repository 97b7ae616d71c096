package cli

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
)

func TestLines_WaitInOrderForAReaderAndTheOldestAreLost(t *testing.T) {
	unread, w := io.Pipe()
	l := &lines{w: w, max: maxLines}
	for i := range 3 * maxLines {
		l.later(fmt.Sprintln(i)) // would block here if it waited for a reader
	}
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		l.now("now\n")
		l.flush()
		w.Close()
	}()
	var got []string
	for in := bufio.NewScanner(unread); in.Scan(); {
		got = append(got, in.Text())
	}
	<-flushed
	if n := len(got); n < maxLines || n > maxLines+3 || got[0] != "0" || got[n-1] != "now" || got[n-2] != fmt.Sprint(3*maxLines-1) {
		t.Errorf("%d lines: %q", n, got)
	}
}

// Requests wait for their log records: they must not block if standard error is not read.
func TestServe_ItsLogDropsRecordsThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe()
		log, flush, err := (&serveFlags{global: &global{}, level: "info"}).logger(write)
		if err != nil {
			t.Fatal(err)
		}
		const most = 1 + maxRecords // one is being written
		for range most + 7 {
			log.Info("a request")
			synctest.Wait()
		}
		flush() // returns although the pipe is not read
		var requests int
		var last string
		for lines := bufio.NewScanner(read); requests < most && lines.Scan(); {
			if strings.Contains(lines.Text(), "a request") {
				requests++
			} else {
				last = lines.Text()
			}
		}
		if requests != most || !strings.Contains(last, "level=ERROR") || !strings.Contains(last, "count=7") {
			t.Errorf("%d of %d records, and %q", requests, most, last)
		}
	})
}
