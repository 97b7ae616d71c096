package s3driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/s3driver/internal/fakes3"
)

// request returns a request for a lease.
func requestOf(id string) driver.Request {
	return driver.Request{Key: "orders/42", ID: id, Owner: "owner of " + id, TTL: time.Minute}
}

// warm makes the driver probe the store.
func warm(t testing.TB, d *Driver) *Driver {
	t.Helper()
	var err error
	for range 100 { // its timeout may be short, and the machine busy
		if _, err = d.bucket.prove(t.Context()); err == nil {
			return d
		}
	}
	t.Fatal(err)
	return nil
}

// isRecord reports whether a request writes or reads a record.
func isRecord(r *http.Request, method string) bool {
	return r.Method == method && strings.HasSuffix(r.URL.Path, suffix)
}

func TestAcquire_TellsTheOutcomeOfALostRequestTruly(t *testing.T) {
	for _, row := range []struct {
		name     string
		method   string
		fault    fakes3.Fault
		definite bool // the error means that the bucket is unchanged
		done     bool // the lease exists
	}{
		{"read cut off", http.MethodGet, fakes3.Cut, true, false},
		{"read hangs", http.MethodGet, fakes3.Hang, true, false},
		{"read refused", http.MethodGet, fakes3.SlowDown, true, false},
		{"read failed", http.MethodGet, fakes3.Failed, true, false},
		{"write cut off", http.MethodPut, fakes3.Cut, false, false},
		{"write hangs", http.MethodPut, fakes3.Hang, false, false},
		{"write refused", http.MethodPut, fakes3.SlowDown, false, false},
		{"write failed after the commit", http.MethodPut, fakes3.Failed, false, true},
		{"answer lost", http.MethodPut, fakes3.Lose, false, true},
		{"connection reset after the commit", http.MethodPut, fakes3.Reset, false, true},
		{"write late", http.MethodPut, fakes3.Late, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := fakes3.New()
			d := warm(t, openAt(t, urlOf(t, s.Start(t, 0).URL, "&timeout=500ms")))
			s.Inject(func(r *http.Request) fakes3.Fault {
				if isRecord(r, row.method) {
					return row.fault
				}
				return fakes3.Answered
			})
			s.Log()
			_, err := d.Acquire(t.Context(), requestOf("a"))
			if err == nil || errors.Is(err, driver.ErrUnavailable) != row.definite || errors.Is(err, driver.ErrPermanent) {
				t.Errorf("definite is %t: %v", errors.Is(err, driver.ErrUnavailable), err)
			}
			if writes := count(s.Log(), http.MethodPut); writes > 1 {
				t.Errorf("%d writes", writes)
			}
			s.Inject(nil)
			if got := holds(t, d, "orders/42", "a"); got != row.done {
				t.Errorf("the lease is there: %t", got)
			}
			ref := driver.Ref{Key: "orders/42", ID: "a", RejectIDFor: time.Minute}
			if row.done { // a repetition has the answer of one request
				if reply := acquire(t, d, requestOf("a"), driver.Granted); !reply.Replayed {
					t.Errorf("repeated: %+v", reply)
				}
			}
			if _, err := d.Release(t.Context(), ref); err != nil {
				t.Error(err)
			}
			if s.Arrive(); holds(t, d, "orders/42", "a") {
				t.Error("a request that arrived after its release took the lock")
			}
		})
	}
}

func count(log []fakes3.Request, method string) (n int) {
	for _, r := range log {
		if r.Method == method {
			n++
		}
	}
	return n
}

func TestAcquire_RepeatsAWriteThatIsRefused(t *testing.T) {
	s := fakes3.New()
	d := warm(t, openAt(t, urlOf(t, s.Start(t, 0).URL, "")))
	conflicts := 3
	s.Inject(func(r *http.Request) fakes3.Fault {
		if conflicts--; r.Method == http.MethodPut && conflicts >= 0 {
			return fakes3.Conflict
		}
		return fakes3.Answered
	})
	acquire(t, d, requestOf("a"), driver.Granted)
}

func TestAcquire_AServerThatIsAwayIsUnavailableAndThenWorksAgain(t *testing.T) {
	s := fakes3.New()
	front := httptest.NewUnstartedServer(s.Front(0))
	address := front.Listener.Addr()
	front.Start()
	d := openAt(t, urlOf(t, front.URL, ""))
	acquire(t, d, requestOf("a"), driver.Granted)
	front.CloseClientConnections()
	front.Close()
	if _, err := d.Acquire(t.Context(), requestOf("b")); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrPermanent) {
		t.Errorf("while it is away: %v", err)
	}
	if ok, err := d.bucket.Swap(t.Context(), "k", "", []byte("x")); ok || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a write while it is away: %t, %v", ok, err)
	}
	again := httptest.NewUnstartedServer(s.Front(0))
	_ = again.Listener.Close()
	again.Listener = listenAt(t, address)
	again.Start()
	defer again.Close()
	defer again.CloseClientConnections()
	acquire(t, d, requestOf("a"), driver.Granted)
}

// TestAcquire_AStoreThatIsNotFitIsRefusedAtOnce checks that no lock is granted, and that the error
// has a remedy.
func TestAcquire_AStoreThatIsNotFitIsRefusedAtOnce(t *testing.T) {
	lacking := func(what fakes3.Lacks) func(http.Handler) http.Handler {
		return func(http.Handler) http.Handler {
			s := fakes3.New()
			s.Lack(what)
			return s.Front(0)
		}
	}
	header := func(change func(http.Header)) func(http.Handler) http.Handler {
		return func(inner http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inner.ServeHTTP(changed{w, change}, r)
			})
		}
	}
	status := func(status int, code string) func(http.Handler) http.Handler {
		return func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Amz-Bucket-Region", "eu-west-1")
				w.WriteHeader(status)
				fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
			})
		}
	}
	for name, row := range map[string]struct {
		store func(http.Handler) http.Handler
		says  string
	}{
		"ignores conditions":    {lacking(fakes3.Conditions), "200 to a request to write an object that is missing, which it is not"},
		"ignores If-Match":      {lacking(fakes3.IfMatch), "with an ETag that it never had"},
		"refuses conditions":    {lacking(fakes3.ConditionalWrites), "no conditional writes"},
		"has no Date":           {header(func(h http.Header) { h["Date"] = nil }), "no Date"},
		"has a wrong Date":      {header(func(h http.Header) { h.Set("Date", "today") }), "no Date"},
		"answers from a cache":  {header(func(h http.Header) { h.Set("Age", "12") }), "12 seconds old"},
		"has no ETags":          {header(func(h http.Header) { h.Del("Etag") }), "ETag"},
		"has weak ETags":        {header(weaken), "without a cache"},
		"is in another region":  {status(http.StatusMovedPermanently, "PermanentRedirect"), "region=eu-west-1"},
		"refuses the caller":    {status(http.StatusForbidden, "AccessDenied"), "s3:ListBucket"},
		"does not know the key": {status(http.StatusForbidden, "InvalidAccessKeyId"), "access key"},
		"has another secret":    {status(http.StatusForbidden, "SignatureDoesNotMatch"), "secret key"},
		"has no such bucket":    {status(http.StatusNotFound, "NoSuchBucket"), `"locks": there is no such bucket`},
		"is not a store at all": {status(http.StatusMethodNotAllowed, "MethodNotAllowed"), "not one of S3"},
		"is unfinished":         {status(http.StatusNotImplemented, ""), "no conditional writes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := fakes3.New()
			front := fakes3.Serve(t, row.store(s.Front(0)))
			d := openAt(t, urlOf(t, front.URL, "&timeout=1m"))
			for range 2 {
				_, err := d.Acquire(t.Context(), requestOf("a"))
				if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), row.says) {
					t.Errorf("%v; want %q", err, row.says)
				}
			}
			if keys := s.Keys(); len(keys) > 0 {
				t.Errorf("left %v", keys)
			}
		})
	}
}

// changed changes the header of each answer.
type changed struct {
	http.ResponseWriter
	change func(http.Header)
}

func (c changed) WriteHeader(status int) {
	c.change(c.Header())
	c.ResponseWriter.WriteHeader(status)
}

// weaken makes the ETag of an object that is read a weak one, as a proxy does that compresses.
func weaken(h http.Header) {
	if h.Get("Last-Modified") != "" {
		h.Set("Etag", "W/"+h.Get("Etag"))
	}
}

func TestAcquire_AnAnswerOfAGatewayIsNoAnswerOfTheStore(t *testing.T) {
	s := fakes3.New()
	store := s.Front(0)
	var gateway atomic.Int64
	front := fakes3.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gateway.Load() == 0 || r.Method != http.MethodPut {
			store.ServeHTTP(w, r)
			return
		}
		store.ServeHTTP(httptest.NewRecorder(), r)
		http.Error(w, "<html>try later</html>", int(gateway.Load()))
	}))
	d := warm(t, openAt(t, urlOf(t, front.URL, "")))
	for _, status := range []int64{400, 403, 404, 429, 500, 502, 503, 504} {
		gateway.Store(status)
		_, err := d.Acquire(t.Context(), requestOf(fmt.Sprint("a", status)))
		if err == nil || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%d: %v", status, err)
		}
		s.Forget()
	}
}

// fading credentials are there for the reads of a test, and not for the writes.
type fading struct{ reads bool }

func (f *fading) Retrieve(context.Context) (aws.Credentials, error) {
	if f.reads = !f.reads; !f.reads {
		return aws.Credentials{}, errors.New("no credentials left")
	}
	return aws.Credentials{AccessKeyID: fakes3.AccessKey, SecretAccessKey: "secret", CanExpire: true}, nil
}

func TestAcquire_AWriteWithoutCredentialsIsCertainlyNotMade(t *testing.T) {
	s := fakes3.New()
	// A sweep would take credentials, too.
	d := warm(t, openAt(t, urlOf(t, s.Start(t, 0).URL, ""), roomdriver.WithSweep(0)))
	o := d.bucket.client.Options()
	o.Credentials = new(fading)
	d.bucket.client = s3.New(o)
	_, err := d.Acquire(t.Context(), requestOf("a"))
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "PutObject") || !strings.Contains(err.Error(), "no credentials left") {
		t.Error(err)
	}
	if errors.Is(err, driver.ErrPermanent) {
		t.Errorf("there were credentials before: %v", err)
	}
	d = openAt(t, urlOf(t, s.Start(t, 0).URL, ""), roomdriver.WithSweep(0))
	o.Credentials = &fading{reads: true}
	d.bucket.client = s3.New(o)
	if _, err := d.Acquire(t.Context(), requestOf("a")); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "AWS_PROFILE") {
		t.Errorf("without credentials from the beginning: %v", err)
	}
}

func TestTTL_BelowTheShortestIsRefused(t *testing.T) {
	d := openAt(t, urlOf(t, fakes3.New().Start(t, 0).URL, ""))
	req := requestOf("a")
	acquire(t, d, req, driver.Granted)
	req.TTL = MinTTL - time.Millisecond
	if _, err := d.Acquire(t.Context(), req); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "14.999s is below 15s") {
		t.Errorf("Acquire: %v", err)
	}
	if err := driver.Supports(d, req); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Supports: %v", err)
	}
	refs := []driver.Ref{{Key: "x", ID: "a", TTL: time.Second}, {Key: req.Key, ID: "a", TTL: MinTTL}}
	answered := make(map[int]bool)
	d.Renew(t.Context(), refs, func(i int, reply driver.Reply, err error) {
		if answered[i] = true; i == 0 != errors.Is(err, driver.ErrInvalid) || i == 1 && reply.State != driver.Granted {
			t.Errorf("Renew %d: %+v, %v", i, reply, err)
		}
	})
	if len(answered) != 2 {
		t.Errorf("answered %v", answered)
	}
}
