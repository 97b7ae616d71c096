package cli

import (
	"bufio"
	"fmt"
	"io"
	"testing"
)

func TestLines_WaitInOrderForAReaderAndTheOldestAreLost(t *testing.T) {
	unread, w := io.Pipe()
	l := &lines{w: w}
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
