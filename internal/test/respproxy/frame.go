package respproxy

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"strings"
)

// frame is one value of RESP2 or RESP3: a request, a reply or a push.
type frame struct {
	// raw is the value as it was on the wire.
	raw []byte
	// kind is its first byte.
	kind byte
	// text is its text, if it has no elements.
	text []byte
	// words are the texts directly inside an array, a set, a map or a push.
	words [][]byte
}

// first returns the first word, or the empty string.
func (f frame) first() string {
	if len(f.words) == 0 {
		return ""
	}
	return string(f.words[0])
}

// readFrame reads one frame.
func readFrame(src *bufio.Reader) (f frame, err error) {
	if f.raw, err = src.ReadBytes('\n'); err != nil {
		return f, err
	}
	f.kind, f.text = f.raw[0], bytes.TrimRight(f.raw[1:], "\r\n")
	if !strings.ContainsRune("$=!*>~%", rune(f.kind)) {
		return f, nil
	}
	n, err := strconv.Atoi(string(f.text))
	f.text = nil
	if err != nil || n < 0 { // -1 is a null
		return f, err
	}
	switch f.kind {
	case '$', '=', '!':
		body := make([]byte, n+len("\r\n"))
		_, err = io.ReadFull(src, body)
		f.raw, f.text = append(f.raw, body...), body[:n]
		return f, err
	case '%':
		n *= 2
	}
	for range n {
		elem, err := readFrame(src)
		if err != nil {
			return f, err
		}
		f.raw, f.words = append(f.raw, elem.raw...), append(f.words, elem.text)
	}
	return f, nil
}
