// Package fakes3 is a bucket of S3 in memory, for tests. It follows the published rules of
// conditional requests, of errors and of listings. Its clock, its servers' clocks and its faults are
// the test's.
package fakes3

import (
	"crypto/md5" //nolint:gosec // an ETag
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Bucket is the name of the only bucket, and AccessKey the only access key.
const (
	Bucket    = "locks"
	AccessKey = "key"
)

// Fault is the fate of a request.
type Fault int

const (
	// Answered: it is executed and answered.
	Answered Fault = iota
	// Cut: the connection ends before it is executed.
	Cut
	// Lose: it is executed, and the connection ends before the answer.
	Lose
	// Reset: it is executed, and the connection is reset before the answer.
	Reset
	// SlowDown: it is answered 503 and not executed.
	SlowDown
	// Failed: it is executed, and answered 500.
	Failed
	// Conflict: it is answered 409 ConditionalRequestConflict and not executed.
	Conflict
	// Hang: it is not executed, and not answered until the client leaves.
	Hang
	// Late: the connection ends at once, and it is executed by the next call of Arrive.
	Late
)

// Lacks is a feature that a store does not have.
type Lacks int

const (
	// Complete: it has all of them.
	Complete Lacks = iota
	// Conditions: conditions of writes are ignored.
	Conditions
	// IfMatch: If-Match of writes is ignored.
	IfMatch
	// ConditionalWrites: writes with a condition are answered 501.
	ConditionalWrites
	// IfMatchOfDelete: the condition of a deletion is ignored.
	IfMatchOfDelete
	// ConditionalDeletes: deletions with a condition are answered 501.
	ConditionalDeletes
	// Atomicity: a write with a condition is not atomic.
	Atomicity
	// Missing: a deletion with a condition is answered 204 if there is no object.
	Missing
)

// Request is a line of the log.
type Request struct {
	Method, Key, IfMatch, IfNoneMatch string
	Status                            int // of the answer, sent or not; 0 if it was not executed
}

// Server is the bucket. It is safe for concurrent use.
type Server struct {
	mu      sync.Mutex
	objects map[string]object
	held    time.Time // the clock, unless it is zero
	lacks   Lacks
	fault   func(*http.Request) Fault
	late    []func()
	log     []Request
	config  map[string]string
}

type object struct {
	content  []byte
	modified time.Time
}

func (o object) etag() string { return fmt.Sprintf(`"%x"`, md5.Sum(o.content)) } //nolint:gosec // the rule of S3

// New returns an empty bucket with a real clock.
func New() *Server { return &Server{objects: make(map[string]object), config: make(map[string]string)} }

// Hold stops the clock. It then moves by Advance.
func (s *Server) Hold() { s.with(func() { s.held = time.Now().Truncate(time.Minute) }) }

// Advance moves a held clock.
func (s *Server) Advance(d time.Duration) { s.with(func() { s.held = s.held.Add(d) }) }

// Lack makes the store lack something.
func (s *Server) Lack(what Lacks) { s.with(func() { s.lacks = what }) }

// Inject makes f choose the fault of each later request. nil ends the faults.
func (s *Server) Inject(f func(*http.Request) Fault) { s.with(func() { s.fault = f }) }

// Configure sets the XML of a part of the bucket's configuration, such as lifecycle.
func (s *Server) Configure(part, text string) { s.with(func() { s.config[part] = text }) }

// Forget removes all objects.
func (s *Server) Forget() { s.with(func() { clear(s.objects) }) }

// Arrive executes the requests that were late.
func (s *Server) Arrive() {
	s.with(func() {
		for _, execute := range s.late {
			execute()
		}
		s.late = nil
	})
}

// Log returns the requests since the last call.
func (s *Server) Log() (log []Request) {
	s.with(func() { log, s.log = s.log, nil })
	return log
}

// Keys returns the names of all objects, also of empty objects.
func (s *Server) Keys() (keys []string) {
	s.with(func() { keys = slices.Sorted(maps.Keys(s.objects)) })
	return keys
}

// Size returns the greatest size of an object.
func (s *Server) Size() (size int) {
	s.with(func() {
		for _, o := range s.objects {
			size = max(size, len(o.content))
		}
	})
	return size
}

func (s *Server) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Start serves the bucket until the test ends. The clock of the returned server is ahead by skew.
func (s *Server) Start(t testing.TB, skew time.Duration) *httptest.Server {
	return Serve(t, s.Front(skew))
}

// Serve serves a handler until the test ends.
func Serve(t testing.TB, handler http.Handler) *httptest.Server {
	front := httptest.NewServer(handler)
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	return front
}

// Front is a server of the bucket, with a clock that is ahead by skew.
func (s *Server) Front(skew time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		s.mu.Lock()
		fault := Answered
		if s.fault != nil {
			fault = s.fault(r)
		}
		a := answer{header: make(http.Header)}
		switch execute := func() { a = s.execute(r, content) }; fault {
		case Answered, Lose, Reset, Failed:
			execute()
		case Late:
			s.late = append(s.late, execute)
		case SlowDown:
			a = problem(http.StatusServiceUnavailable, "SlowDown")
		case Conflict:
			a = problem(http.StatusConflict, "ConditionalRequestConflict")
		}
		if fault == Failed {
			a = problem(http.StatusInternalServerError, "InternalError")
		}
		a.header.Set("Date", s.now().Add(skew).UTC().Format(http.TimeFormat))
		s.mu.Unlock()
		switch fault {
		case Hang:
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		case Reset:
			reset(w)
		case Cut, Lose, Late:
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), a.header)
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body)
	})
}

// reset ends a connection as the system of a crashed program does.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	panic(http.ErrAbortHandler)
}

func (s *Server) now() time.Time {
	if s.held.IsZero() {
		return time.Now()
	}
	return s.held
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem returns an error of S3.
func problem(status int, code string) answer {
	body := fmt.Sprintf("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>fake</Message></Error>", code)
	return answer{status, http.Header{"Content-Type": {"application/xml"}}, []byte(body)}
}

// execute executes a request and logs it.
func (s *Server) execute(r *http.Request, content []byte) answer {
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	a := s.route(r, key, content)
	s.log = append(s.log, Request{r.Method, key, r.Header.Get("If-Match"), r.Header.Get("If-None-Match"), a.status})
	return a
}

func (s *Server) route(r *http.Request, key string, content []byte) answer {
	bucket, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch auth := r.Header.Get("Authorization"); {
	case !strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential="):
		return problem(http.StatusForbidden, "AccessDenied")
	case !strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential="+AccessKey+"/"):
		return problem(http.StatusForbidden, "InvalidAccessKeyId")
	case bucket != Bucket:
		return problem(http.StatusNotFound, "NoSuchBucket")
	case len(key) > 1024:
		return problem(http.StatusBadRequest, "KeyTooLongError")
	}
	switch {
	case r.Method == http.MethodGet && key == "":
		return s.settings(r)
	case r.Method == http.MethodGet:
		o, ok := s.objects[key]
		if !ok {
			return problem(http.StatusNotFound, "NoSuchKey")
		}
		header := http.Header{"Etag": {o.etag()}, "Last-Modified": {o.modified.UTC().Format(http.TimeFormat)}}
		return answer{http.StatusOK, header, o.content}
	case r.Method == http.MethodPut:
		return s.put(r.Header, key, content)
	case r.Method == http.MethodDelete:
		return s.remove(r.Header, key)
	}
	return problem(http.StatusMethodNotAllowed, "MethodNotAllowed")
}

// put follows the rules of conditional writes: with If-None-Match the object must be missing, with
// If-Match it must have the ETag. A request has one of them.
func (s *Server) put(header http.Header, key string, content []byte) answer {
	o, ok := s.objects[key]
	match, none := header.Get("If-Match"), header.Get("If-None-Match")
	switch {
	case match != "" && none != "", none != "" && none != "*", s.lacks == ConditionalWrites && match+none != "":
		return problem(http.StatusNotImplemented, "NotImplemented")
	case s.lacks == Conditions, s.lacks == IfMatch && match != "":
	case none != "" && ok, match != "" && ok && match != o.etag():
		return problem(http.StatusPreconditionFailed, "PreconditionFailed")
	case match != "" && !ok:
		return problem(http.StatusNotFound, "NoSuchKey")
	}
	if s.lacks == Atomicity {
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.mu.Lock()
	}
	o = object{content, s.now()}
	s.objects[key] = o
	return answer{http.StatusOK, http.Header{"Etag": {o.etag()}}, nil}
}

// remove follows the rules of conditional deletions.
func (s *Server) remove(header http.Header, key string) answer {
	o, ok := s.objects[key]
	match := header.Get("If-Match")
	switch {
	case match == "", s.lacks == IfMatchOfDelete, s.lacks == Missing && !ok:
	case s.lacks == ConditionalDeletes:
		return problem(http.StatusNotImplemented, "NotImplemented")
	case !ok:
		return problem(http.StatusNotFound, "NoSuchKey")
	case match != "*" && match != o.etag():
		return problem(http.StatusPreconditionFailed, "PreconditionFailed")
	}
	delete(s.objects, key)
	return answer{http.StatusNoContent, make(http.Header), nil}
}

// absent has the errors of parts of the configuration that were not set.
var absent = map[string]string{
	"lifecycle": "NoSuchLifecycleConfiguration", "replication": "ReplicationConfigurationNotFoundError",
	"object-lock": "ObjectLockConfigurationNotFoundError",
}

// settings answers a request about the bucket.
func (s *Server) settings(r *http.Request) answer {
	for part, code := range absent {
		if r.URL.Query().Has(part) && s.config[part] == "" {
			return problem(http.StatusNotFound, code)
		}
	}
	for part, text := range s.config {
		if r.URL.Query().Has(part) {
			return answer{http.StatusOK, http.Header{"Content-Type": {"application/xml"}}, []byte(text)}
		}
	}
	if r.URL.Query().Has("versioning") {
		return answer{http.StatusOK, make(http.Header), []byte("<VersioningConfiguration/>")}
	}
	return s.list(r)
}

type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
	KeyCount              int
	Contents              []entry
}

type entry struct {
	Key, LastModified, ETag string
	Size                    int
}

// list answers ListObjectsV2. The token of a page is its last key.
func (s *Server) list(r *http.Request) answer {
	q := r.URL.Query()
	most, err := strconv.Atoi(q.Get("max-keys"))
	last, err2 := base64.URLEncoding.DecodeString(q.Get("continuation-token"))
	if q.Get("list-type") != "2" || err != nil || err2 != nil {
		return problem(http.StatusBadRequest, "InvalidArgument")
	}
	var page listing
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, q.Get("prefix")) || key <= string(last) {
			continue
		}
		if len(page.Contents) == min(most, 1000) {
			page.IsTruncated = true
			page.NextContinuationToken = base64.URLEncoding.EncodeToString([]byte(page.Contents[len(page.Contents)-1].Key))
			break
		}
		o := s.objects[key]
		page.Contents = append(page.Contents, entry{key, o.modified.UTC().Format("2006-01-02T15:04:05.000Z"), o.etag(), len(o.content)})
	}
	page.KeyCount = len(page.Contents)
	body, err := xml.Marshal(page)
	if err != nil {
		return problem(http.StatusInternalServerError, "InternalError")
	}
	return answer{http.StatusOK, http.Header{"Content-Type": {"application/xml"}}, body}
}
