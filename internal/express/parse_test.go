package express

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

const (
	acquire = "POST /v1/locks/a%2Fb HTTP/1.1\r\nHost: localhost:8700\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"leaseId\":\"x\"}"
	release = "DELETE /v1/locks/a/leases/x?keepMs=5 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n"
)

// agrees compares what was taken apart with what net/http makes of it.
func agrees(t *testing.T, text []byte, p *plain) {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(text))
	r, err := http.ReadRequest(in)
	if err != nil {
		t.Fatalf("%q is taken, and net/http says: %v", text, err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("%q has a body, and net/http says: %v", text, err)
	}
	rest, _ := io.ReadAll(in)
	if size := len(text) - len(rest); size != p.size || !bytes.Equal(body, p.body) || r.ContentLength != int64(len(p.body)) {
		t.Errorf("%q: %d bytes with the body %q, want %d with %q", text, p.size, p.body, size, body)
	}
	if r.Method != p.method || r.RequestURI != p.target || r.Host != p.host || !reflect.DeepEqual(r.Header, p.header) {
		t.Errorf("%q: %q %q %q %q, want %q %q %q %q", text, p.method, p.target, p.host, p.header, r.Method, r.RequestURI, r.Host, r.Header)
	}
	if r.URL.Path != p.url.Path || r.URL.EscapedPath() != p.url.EscapedPath() || r.URL.String() != p.url.String() ||
		!reflect.DeepEqual(r.URL.Query(), p.url.Query()) {
		t.Errorf("%q: URL %#v, want %#v", text, p.url, r.URL)
	}
	if r.ProtoMajor != 1 || r.ProtoMinor != 1 || len(r.TransferEncoding) > 0 || r.Close || len(r.Trailer) > 0 {
		t.Errorf("%q is taken, and is more than plain: %+v", text, r)
	}
}

// FuzzParse looks for requests that are understood in another way than net/http
// understands them: in front of a proxy that is how requests are smuggled.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		acquire, release, acquire + release,
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /a?b=c&d=%20+e?f HTTP/1.1\r\nHost: [::1]:80\r\nAccept: */*\r\nX-A:\r\nx-a: \t b \t\r\n\r\n",
		"PUT /? HTTP/1.1\r\nHost: x\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
		"GET //evil HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://y/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", "GET / HTTP/1.1\nHost: x\n\n",
		"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", "GET /%00%ff%2e HTTP/1.1\r\nHost: x\r\n\r\n", "GET /a:b@c HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		f.Add([]byte(text), []byte(release))
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		var m parser
		for _, text := range [][]byte{one, two, one} { // what is remembered of one must not be said of another
			if p, ok := m.parse(text); ok {
				agrees(t, text, &p)
			}
		}
	})
}

func TestParse_TakesWhatClientsOfTheServiceSend(t *testing.T) {
	var m parser
	for range 2 {
		for _, text := range []string{
			acquire, release, acquire + release,
			"PUT /v1/locks/a/leases/x HTTP/1.1\r\nhost: localhost\r\nconnection: keep-alive\r\ncontent-length: 2\r\naccept: */*\r\n\r\n{}",
			"POST /v1/leases:renew HTTP/1.1\r\nHost: [::1]:8700\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: 13\r\nAccept-Encoding: gzip\r\n\r\n{\"leases\":[]}",
		} {
			p, ok := m.parse([]byte(text))
			if !ok {
				t.Fatalf("%q is not taken", text)
			}
			agrees(t, []byte(text), &p)
		}
	}
}

func TestParse_LeavesToOthersWhatIsNotPlain(t *testing.T) {
	head := "POST / HTTP/1.1\r\nHost: x\r\n"
	for _, text := range []string{
		"", "POST", head, acquire[:len(acquire)-1], // not whole
		"GET / HTTP/1.0\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: \r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
		"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "GET x HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /\tb HTTP/1.1\r\nHost: x\r\n\r\n", "GET /ü HTTP/1.1\r\nHost: x\r\n\r\n", "GET / x HTTP/1.1\r\nHost: x\r\n\r\n", "GET  HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\nHost: x\n\n", head + "A: b\nC: d\r\n\r\n", head + "A : b\r\n\r\n", head + " A: b\r\n\r\n", head + "A: \x01\r\n\r\n", head + "A: ü\r\n\r\n", head + "A\r\n\r\n",
		head + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", head + "Transfer-Encoding: identity\r\n\r\n", head + "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n",
		head + "Connection: close\r\n\r\n", head + "Connection: upgrade\r\nUpgrade: h2c\r\n\r\n", head + "Trailer: A\r\n\r\n",
		head + "Content-Length: +1\r\n\r\nx", head + "Content-Length: 01\r\n\r\nx", head + "Content-Length: -1\r\n\r\n", head + "Content-Length: 1, 1\r\n\r\nx",
		head + "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", head + "Content-Length: 9223372036854775807\r\n\r\n", head + "Content-Length:\r\n\r\n",
	} {
		var m parser
		if p, ok := m.parse([]byte(text)); ok {
			t.Errorf("%q is taken: %+v", text, p)
		}
		if _, ok := m.parse([]byte(acquire)); !ok {
			t.Errorf("nothing is taken after %q", text)
		}
	}
}

func TestParse_RemembersHeadersAndNotRequests(t *testing.T) {
	var m parser
	first, _ := m.parse([]byte(acquire))
	second, ok := m.parse([]byte(strings.Replace(acquire, "\"x\"", "\"y\"", 1)))
	if !ok || string(second.body) != `{"leaseId":"y"}` || reflect.ValueOf(first.header).Pointer() != reflect.ValueOf(second.header).Pointer() {
		t.Errorf("%q with %v, want the other body with the same header", second.body, second.header)
	}
}
