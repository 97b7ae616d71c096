package express

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
)

// plain is a request that was taken apart. It says the same as what
// [http.ReadRequest] makes of the same bytes, or there is none.
type plain struct {
	method, target, host string

	url    url.URL // with the path also as it came, in RawPath
	header http.Header
	body   []byte // within the bytes that were taken apart
	size   int    // of the request, with its body
}

// fields are the lines of a header, taken apart. A client mostly sends the same
// ones again, which then need not be: handlers do not change them.
type fields struct {
	text   string
	header http.Header
	host   string
	length int // of the body
}

const (
	version = " HTTP/1.1"
	newline = "\r\n"
)

// parser takes the requests of a connection apart.
type parser struct {
	last [2]fields // those of requests with a body, and without
}

// parse takes the request apart that text begins with. It knows the plainest
// form of one only, whole, without anything that could be read in two ways; ok is
// false for whatever else it is, or may become when more of it has come.
func (m *parser) parse(text []byte) (p plain, ok bool) {
	end := bytes.Index(text, []byte(newline+newline))
	if end < 0 {
		return plain{}, false
	}
	first := bytes.Index(text, []byte(newline))
	if !p.line(string(text[:first])) {
		return plain{}, false
	}
	f, ok := m.fields(text[min(first+len(newline), end):end])
	p.size = end + len(newline+newline) + f.length
	if !ok || f.length > len(text) || p.size > len(text) {
		return plain{}, false
	}
	p.header, p.host, p.body = f.header, f.host, text[p.size-f.length:p.size]
	return p, true
}

// line takes the first line, without its end.
func (p *plain) line(text string) (ok bool) {
	text, ok = strings.CutSuffix(text, version)
	if !ok {
		return false
	}
	p.method, p.target, ok = strings.Cut(text, " ")
	if !ok || !known(p.method) || !within(p.target, targets) || p.target[0] != '/' || strings.HasPrefix(p.target, "//") {
		return false
	}
	path, query, asks := strings.Cut(p.target, "?")
	plainly, err := url.PathUnescape(path)
	p.url = url.URL{Path: plainly, RawPath: path, RawQuery: query, ForceQuery: asks && query == ""}
	return err == nil
}

// known reports whether a method is one whose answer has a body of its own.
func known(method string) bool {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// fields takes the lines of a header.
func (m *parser) fields(text []byte) (f *fields, ok bool) {
	for i := range m.last {
		if m.last[i].header != nil && m.last[i].text == string(text) {
			return &m.last[i], true
		}
	}
	f = &fields{text: string(text)}
	if !f.take() {
		return f, false
	}
	at := 0
	if f.length == 0 {
		at = 1
	}
	m.last[at] = *f
	return f, true
}

// take takes the text apart. It reports whether all of it is plain.
func (f *fields) take() bool {
	n := strings.Count(f.text, newline) + 1
	f.header = make(http.Header, n)
	values := make([]string, 0, n) // one piece for all
	for line := range strings.SplitSeq(f.text, newline) {
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !ok || !within(name, names) || !within(value, printed) && value != "" {
			return false
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if !f.plain(name, value) {
			return false
		}
		if name == "Host" { // has a field of its own
			continue
		}
		values = append(values, value)
		if last := len(values); f.header[name] == nil {
			f.header[name] = values[last-1 : last : last]
		} else {
			f.header[name] = append(f.header[name], value)
		}
	}
	return f.host != ""
}

// plain takes note of what a field says of the request itself. It reports
// whether that is nothing that needs more than to be passed to a handler.
func (f *fields) plain(name, value string) (ok bool) {
	switch name {
	case "Host":
		ok = f.host == "" && within(value, hosts)
		f.host = value
		return ok
	case "Content-Length":
		f.length, ok = size(value)
		return ok && f.header[name] == nil
	case "Connection":
		return strings.EqualFold(value, "keep-alive")
	case "Transfer-Encoding", "Trailer", "Te", "Upgrade", "Http2-Settings", "Expect", "Pragma":
		return false
	}
	return true
}

// size is the number that a length is: one that is written as we would.
func size(text string) (n int, ok bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == text
}

// class is what bytes a text may have.
type class uint8

const (
	names   class = 1 << iota // token, RFC 9110 5.6.2
	targets                   // path and query, RFC 3986 3.3 and 3.4
	hosts                     // a name or an address, with a port
	printed                   // ASCII that is printed, space, and tab
)

var classes = func() (all [256]class) {
	const alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	for c, in := range map[class]string{
		names:   alphanumeric + "!#$%&'*+-.^_`|~",
		targets: alphanumeric + "-._~%!$&'()*+,;=:@/?",
		hosts:   alphanumeric + "-._:[]",
		printed: "\t",
	} {
		for i := range len(in) {
			all[in[i]] |= c
		}
	}
	for b := ' '; b <= '~'; b++ {
		all[b] |= printed
	}
	return all
}()

// within reports whether text is not empty and has bytes of the class only.
func within(text string, c class) bool {
	for i := range len(text) {
		if classes[text[i]]&c == 0 {
			return false
		}
	}
	return text != ""
}
