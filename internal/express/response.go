package express

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// response collects an answer, which is sent in one piece with its length. It
// implements [http.ResponseWriter], for one goroutine.
//
// What a handler says of the length is not used; informational answers are not
// sent, nor is a Content-Type guessed.
type response struct {
	header http.Header
	status int    // 0 until there is one
	head   []byte // the status and the header, without its end
	body   []byte
	close  bool // the handler wants the connection to be closed

	second int64  // since 1970
	date   []byte // of that second
}

func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header, 4)
	}
	return w.header
}

func (w *response) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		panic(fmt.Sprintf("express: status %d", status)) // as net/http does
	case w.status != 0 || status < http.StatusOK:
		return
	}
	w.status = status
	w.head = append(w.head, "HTTP/1.1 "...)
	w.head = strconv.AppendInt(w.head, int64(status), 10)
	w.head = append(w.head, ' ')
	w.head = append(w.head, http.StatusText(status)...)
	w.head = append(w.head, newline...)
	for name, values := range w.header {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Date":
			continue
		case "Connection":
			w.close = w.close || strings.EqualFold(values[0], "close")
			continue
		}
		for _, value := range values {
			w.field(name, value)
		}
	}
}

// field adds a line to the header. One that cannot be sent as it is is left out.
func (w *response) field(name, value string) {
	if !within(name, names) || strings.ContainsAny(value, "\r\n\x00") {
		return
	}
	w.head = append(w.head, name...)
	w.head = append(w.head, ": "...)
	w.head = append(w.head, value...)
	w.head = append(w.head, newline...)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.bodied() {
		return 0, http.ErrBodyNotAllowed
	}
	w.body = append(w.body, b...)
	return len(b), nil
}

// bodied reports whether the status is one of answers that have a body.
func (w *response) bodied() bool {
	return w.status != http.StatusNoContent && w.status != http.StatusNotModified
}

// SetReadDeadline is for [http.ResponseController]: there is nothing to wait
// for, since requests are here whole before they are handled.
func (w *response) SetReadDeadline(time.Time) error { return nil }

// finish returns the answer.
func (w *response) finish(now time.Time) []byte {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if second := now.Unix(); second != w.second {
		w.second, w.date = second, now.UTC().AppendFormat(w.date[:0], "Date: "+http.TimeFormat+newline)
	}
	w.head = append(w.head, w.date...)
	if w.bodied() {
		w.head = append(w.head, "Content-Length: "...)
		w.head = strconv.AppendInt(w.head, int64(len(w.body)), 10)
		w.head = append(w.head, newline...)
	}
	if w.close {
		w.head = append(w.head, "Connection: close\r\n"...)
	}
	w.head = append(w.head, newline...)
	w.head = append(w.head, w.body...)
	return w.head
}

// again empties the response for the next request, and keeps its memory if that
// is little.
func (w *response) again() {
	const kept = 4 << 10
	if cap(w.head)+cap(w.body) > kept {
		w.head, w.body = nil, nil
	}
	clear(w.header)
	w.status, w.head, w.body, w.close = 0, w.head[:0], w.body[:0], false
}
