package respproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// frame is one value of RESP2 or RESP3: a request, a reply or a push.
type frame struct {
	// raw is the value as it was on the wire.
	raw []byte
	// kind is its first byte.
	kind byte
	// elems are the texts directly inside an array, a set, a map or a push.
	// The text of something that is nested deeper is empty.
	elems [][]byte
}

// word returns the i-th element, or nil.
func (f frame) word(i int) []byte {
	if i >= len(f.elems) {
		return nil
	}
	return f.elems[i]
}

// frameReader cuts a stream into frames.
type frameReader struct {
	src *bufio.Reader
	raw []byte // of the frame being read
}

func newFrameReader(src io.Reader) *frameReader {
	return &frameReader{src: bufio.NewReader(src)}
}

// span is a text's place in raw, which moves while it grows.
type span struct{ from, to int }

// next reads one frame.
func (r *frameReader) next() (frame, error) {
	r.raw = nil
	var spans []span
	if _, err := r.value(&spans); err != nil {
		return frame{}, err
	}
	f := frame{raw: r.raw, kind: r.raw[0]}
	for _, s := range spans {
		f.elems = append(f.elems, r.raw[s.from:s.to])
	}
	return f, nil
}

// value reads one value and returns its text. The texts directly inside it
// are appended to elems, unless that is nil.
func (r *frameReader) value(elems *[]span) (span, error) {
	line, err := r.line()
	if err != nil || line.from == line.to {
		return span{}, err
	}
	perElement := 1
	switch r.raw[line.from] {
	case '$', '=', '!':
		return r.bulk(line)
	case '%':
		perElement = 2
	case '*', '>', '~':
	default:
		return span{line.from + 1, line.to}, nil
	}
	n, err := r.size(line)
	if err != nil {
		return span{}, err
	}
	for range n * perElement {
		elem, err := r.value(nil)
		if err != nil {
			return span{}, unexpected(err)
		}
		if elems != nil {
			*elems = append(*elems, elem)
		}
	}
	return span{}, nil
}

// bulk reads the text whose length is in line; -1 is a null.
func (r *frameReader) bulk(line span) (span, error) {
	n, err := r.size(line)
	if n < 0 || err != nil {
		return span{}, err
	}
	from := len(r.raw)
	r.raw = slices.Grow(r.raw, n+len("\r\n"))[:from+n+len("\r\n")]
	_, err = io.ReadFull(r.src, r.raw[from:])
	return span{from, from + n}, unexpected(err)
}

// size is the number on the line after its first byte.
func (r *frameReader) size(line span) (int, error) {
	n, err := strconv.Atoi(string(r.raw[line.from+1 : line.to]))
	if err != nil {
		return 0, fmt.Errorf("respproxy: length in %q: %w", r.raw[line.from:line.to], err)
	}
	return n, nil
}

// line reads a line and returns its place without the line end.
func (r *frameReader) line() (span, error) {
	from := len(r.raw)
	for {
		part, err := r.src.ReadSlice('\n')
		r.raw = append(r.raw, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && len(r.raw) > from:
			return span{}, unexpected(err)
		case err != nil:
			return span{}, err
		}
		return span{from, from + len(bytes.TrimRight(r.raw[from:], "\r\n"))}, nil
	}
}

// unexpected marks the end of a stream inside a frame.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
