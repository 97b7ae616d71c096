package respproxy

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadFrame_CutsTheStreamWhereValuesEnd(t *testing.T) {
	frames := []string{
		"+OK\r\n",
		"-ERR no\r\n",
		":1\r\n",
		"$3\r\na\r\n\r\n", // a text may look like a line end
		"$-1\r\n",
		"*-1\r\n",
		"*0\r\n",
		"*2\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n",
		"%1\r\n$1\r\na\r\n%1\r\n:1\r\n:2\r\n",
		"~2\r\n:1\r\n:2\r\n",
		">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
		"_\r\n",
		"#t\r\n",
		",1.5\r\n",
		"(123456789012345678901234567890\r\n",
		"=5\r\ntxt:x\r\n",
		"!5\r\nERR x\r\n",
		"$9000\r\n" + strings.Repeat("x", 9000) + "\r\n",
		"+" + strings.Repeat("x", 9000) + "\r\n",
	}
	r := bufio.NewReader(iotest.OneByteReader(strings.NewReader(strings.Join(frames, ""))))
	for _, want := range frames {
		f, err := readFrame(r)
		if err != nil {
			t.Fatalf("at %.40q: %v", want, err)
		}
		if string(f.raw) != want || f.kind != want[0] {
			t.Fatalf("got %.40q, want %.40q", f.raw, want)
		}
	}
	if _, err := readFrame(r); !errors.Is(err, io.EOF) {
		t.Fatalf("at the end: %v, want EOF", err)
	}
}
