package httpdriver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server"
)

// certain are the errors that mean that a retry is pointless, or that the request had no
// effect.
var certain = []error{driver.ErrUnavailable, driver.ErrInvalid, driver.ErrMismatch, errors.ErrUnsupported, driver.ErrClosed}

func isCertain(err error) bool {
	for _, target := range certain {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// doubts reports whether err leaves the outcome unknown, as an answer that is not the
// service's must. A failed list or inspect has certainly had no effect.
func doubts(verb string, err error) bool {
	if verb == "list" || verb == "inspect" {
		return errors.Is(err, driver.ErrUnavailable) && !timing.Final(err)
	}
	return err != nil && !isCertain(err)
}

// verbs make each kind of call to a driver.
var verbs = map[string]func(context.Context, *httpdriver.Driver) error{
	"acquire": func(ctx context.Context, d *httpdriver.Driver) error {
		_, err := d.Acquire(ctx, request("k", "a"))
		return err
	},
	"renew": func(ctx context.Context, d *httpdriver.Driver) (err error) {
		d.Renew(ctx, []driver.Ref{{Key: "k", ID: "a", TTL: time.Minute}}, func(_ int, _ driver.Reply, e error) { err = e })
		return err
	},
	"renew many": func(ctx context.Context, d *httpdriver.Driver) (err error) {
		refs := []driver.Ref{{Key: "k", ID: "a", TTL: time.Minute}, {Key: "l", ID: "b", TTL: time.Minute}}
		d.Renew(ctx, refs, func(_ int, _ driver.Reply, e error) {
			if e == nil || isCertain(e) || err == nil {
				err = e
			}
		})
		return err
	},
	"release": func(ctx context.Context, d *httpdriver.Driver) error {
		_, err := d.Release(ctx, driver.Ref{Key: "k", ID: "a"})
		return err
	},
	"list": func(ctx context.Context, d *httpdriver.Driver) error {
		_, _, err := d.List(ctx, "", "")
		return err
	},
	"inspect": func(ctx context.Context, d *httpdriver.Driver) error {
		_, err := d.Inspect(ctx, "k")
		return err
	},
	"break": func(ctx context.Context, d *httpdriver.Driver) error {
		_, err := d.Break(ctx, "k", "a", "test")
		return err
	},
}

// foreign are answers of a proxy or gateway between the driver and the service.
var foreign = map[string]canned{
	"nothing":                  {media: ""},
	"a page":                   {media: "text/html", body: []byte("<html>no</html>")},
	"JSON of another program":  {media: "application/json", body: []byte(`{"error":"no","status":"ok"}`)},
	"null":                     {media: "application/json", body: []byte(`null`)},
	"a problem of another":     {media: wire.ProblemMedia, body: []byte(`{"type":"about:blank","title":"no","status":400}`)},
	"a problem without a type": {media: wire.ProblemMedia, body: []byte(`{"title":"no"}`)},
	"a problem of the future":  {media: wire.ProblemMedia, body: []byte(`{"type":"` + wire.ProblemTypes + `melted","title":"no"}`)},
	"a problem cut off":        {media: wire.ProblemMedia, body: []byte(`{"type":"` + wire.ProblemTypes + `invalid","title":"n`)},
	"a problem of another id":  {media: wire.ProblemMedia, body: []byte(`{"type":"` + wire.ProblemTypes + `gone","title":"n","leaseId":"z"}`)},
	"an empty object":          {media: "application/json", body: []byte(`{}`)},
	"an empty lease":           {media: "application/json", body: []byte(`{"leases":[{}]}`)},
	"another id":               {media: "application/json", body: []byte(`{"leaseId":"z","state":"gone"}`)},
	"another id of a batch":    {media: "application/json", body: []byte(`{"leases":[{"leaseId":"z","state":"gone"}]}`)},
	"a state of the future":    {media: "application/json", body: []byte(`{"leaseId":"a","state":"floating"}`)},
	"a page about problems":    {media: "text/html", body: []byte(`{"type":"` + wire.ProblemTypes + `invalid","title":"no"}`)},
}

// TestGateway_HR_C5_OnlyAServiceIsCertain plays a gateway that answers each call with each
// status: the service behind it may or may not have carried out the request.
func TestGateway_HR_C5_OnlyAServiceIsCertain(t *testing.T) {
	if testing.Short() {
		skip.Racing(t, "it sends one request after the other")
	}
	for what, answer := range foreign {
		for status := 200; status < 600; status++ {
			answer.status = status
			d := answering(t, &answer)
			for verb, call := range verbs {
				if err := call(t.Context(), d); !doubts(verb, err) {
					t.Errorf("%s is answered %d with %s: %v", verb, status, what, err)
				}
			}
		}
	}
}

// The driver relies on the causes of the service, so each new cause needs a decision here.
func TestGateway_HR_C6_EveryProblemOfTheServiceIsDecided(t *testing.T) {
	nothing := map[string]error{ // done
		"mismatch": driver.ErrMismatch, "invalid": driver.ErrInvalid, "too-large": driver.ErrInvalid,
		"unsupported": errors.ErrUnsupported, "unauthenticated": driver.ErrPermanent, "forbidden": driver.ErrPermanent,
		"not-found": driver.ErrPermanent, "method-not-allowed": driver.ErrPermanent,
		"too-many-waiters": driver.ErrUnavailable,
		"unavailable":      driver.ErrUnavailable, "overloaded": driver.ErrUnavailable, "draining": driver.ErrUnavailable,
	}
	unknown := []string{"unknown", "internal", "unprotected", "operation-failed"}
	answers := []string{"held", "gone", "broken", "released", "moved", "not-held"}
	decided := len(nothing) + len(unknown) + len(answers)
	if all := server.Causes(); len(all) != decided {
		t.Errorf("the service has %d causes, %d are decided here", len(all), decided)
	}
	ask := func(cause string) error {
		for _, c := range server.Causes() {
			if c.Name == cause {
				body := fmt.Appendf(nil, `{"type":%q,"title":%q,"status":%d,"leaseId":"a"}`, c.Type(), c.Title, c.Status)
				return verbs["release"](t.Context(), answering(t, &canned{status: c.Status, media: wire.ProblemMedia + "; charset=utf-8", body: body}))
			}
		}
		return fmt.Errorf("the service does not have it: %w", io.EOF)
	}
	for cause, want := range nothing {
		err := ask(cause)
		if !errors.Is(err, want) || errors.Is(err, driver.ErrPermanent) != errors.Is(want, driver.ErrPermanent) {
			t.Errorf("%s: %v, want %v", cause, err, want)
		}
	}
	for _, cause := range unknown {
		if err := ask(cause); err == nil || isCertain(err) || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", cause, err)
		}
	}
	for _, cause := range answers {
		if err := ask(cause); err != nil {
			t.Errorf("%s: %v", cause, err)
		}
	}
}

// A service refuses a whole batch, for example because it is older and lacks a field. This
// is no answer about a single lease.
func TestGateway_HR_C5_NoProblemOfABatchEndsALease(t *testing.T) {
	for _, c := range server.Causes() {
		body := fmt.Appendf(nil, `{"type":%q,"title":%q,"status":%d}`, c.Type(), c.Title, c.Status)
		d := answering(t, &canned{status: c.Status, media: wire.ProblemMedia, body: body})
		refs := []driver.Ref{{Key: "k", ID: "a", TTL: time.Minute}, {Key: "l", ID: "b", TTL: time.Minute}}
		d.Renew(t.Context(), refs, func(i int, reply driver.Reply, err error) {
			if err == nil || timing.Final(err) {
				t.Errorf("%s: lease %d: %+v, %v", c.Name, i, reply, err)
			}
		})
	}
}

// A batch of renewals is cut into requests that the service takes, and halved for a gateway that
// takes only small bodies.
func TestGateway_HR_C5_ABatchThatIsTooLargeIsCut(t *testing.T) {
	for name, c := range map[string]struct {
		leases, keySize int
		bound           int64
	}{
		"by the service": {80, 509, 1 << 40}, // keys of full length, of which every character takes six bytes in JSON
		"by a gateway":   {50, 0, 600},
	} {
		t.Run(name, func(t *testing.T) {
			var batches atomic.Int64
			s := aService(t)
			d := open(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/leases:renew" {
					if r.ContentLength > c.bound {
						http.Error(w, "too large", http.StatusRequestEntityTooLarge)
						return
					}
					batches.Add(1)
				}
				s.ServeHTTP(w, r)
			})))
			var refs []driver.Ref
			for i := range c.leases {
				key := fmt.Sprintf("%03d%s", i, strings.Repeat("<", c.keySize))
				ask.Acquire(t, d, request(key, "a"), driver.Granted)
				refs = append(refs, driver.Ref{Key: key, ID: "a", TTL: time.Minute})
			}
			answered := make(map[int]bool)
			d.Renew(t.Context(), refs, func(i int, reply driver.Reply, err error) {
				if answered[i] {
					t.Errorf("renewal %d is answered twice", i)
				}
				if answered[i] = true; err != nil || reply.State != driver.Granted {
					t.Error(i, reply, err)
				}
			})
			if len(answered) != len(refs) || batches.Load() < 2 {
				t.Errorf("%d of %d renewals were answered in %d requests", len(answered), len(refs), batches.Load())
			}
		})
	}
}

// A lock at another address is another lock, and the client's token must not be sent there.
func TestGateway_HR_C5_ARedirectionIsNotFollowed(t *testing.T) {
	const other = "http://elsewhere"
	for _, status := range []int{301, 302, 303, 307, 308} {
		d := over(t, func(r *http.Request) (*http.Response, error) {
			if r.URL.Host != "service" {
				t.Errorf("%s is asked", r.URL)
			}
			res, err := (&canned{status: status}).RoundTrip(r)
			res.Header.Set("Location", other)
			return res, err
		})
		for verb, ask := range verbs {
			if err := ask(t.Context(), d); !doubts(verb, err) || !strings.Contains(err.Error(), other) {
				t.Errorf("%s, %d: %v, want an unknown outcome that names %s", verb, status, err, other)
			}
		}
	}
}

// A used connection is closed after the request arrived. If the transport repeated the request,
// the second answer would hide the effect of the first request.
func TestTransport_HR_C6_ARequestIsNotRepeatedUnseen(t *testing.T) {
	for protocol := range protocols {
		for verb, ask := range verbs {
			if verb == "list" || verb == "inspect" {
				continue // they have no effect
			}
			var asked atomic.Int64
			cuts := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Proto != protocol {
					t.Errorf("asked by %s", r.Proto)
				}
				if r.Method == http.MethodGet {
					_, _ = io.WriteString(w, `{"keys":[]}`)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				if asked.Add(1) == 1 {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Content-Type", wire.ProblemMedia)
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, `{"type":"`+wire.ProblemTypes+`unavailable","title":"x"}`)
			})
			handler := func(*testing.T) http.Handler { return cuts }
			t.Run(protocol+" "+verb, func(t *testing.T) {
				inMemory(t, protocol, handler, func(t *testing.T, d *httpdriver.Driver, _ *network) {
					if _, _, err := d.List(t.Context(), "", ""); err != nil { // the connection has been used
						t.Fatal(err)
					}
					if err := ask(t.Context(), d); err == nil || isCertain(err) || asked.Load() != 1 {
						t.Errorf("%v after %d requests, want one of unknown outcome", err, asked.Load())
					}
				})
			})
		}
	}
}

// A page, a redirection and an error of a gateway contain no address, even if they look like
// an event stream.
func TestGateway_HR_C5_AStreamOfEventsIsTheServices(t *testing.T) {
	const text = "event: ready\ndata: {\"address\":\"elsewhere\"}\n\n"
	s := service(t, memdriver.New())
	answers := make(chan func(http.ResponseWriter, *http.Request), 9)
	for _, status := range []int{200, 203, 302, 404, 503} {
		answers <- func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			if status != http.StatusOK {
				w.Header().Set("Content-Type", "text/event-stream")
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		}
	}
	d := open(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case answer := <-answers:
			answer(w, r)
		default:
			s.ServeHTTP(w, r)
		}
	})))
	var hints atomic.Int64
	sub, err := d.Watch(func(driver.Hint) { hints.Add(1) })
	noErr(t, err)
	defer sub.Close()
	eventually(t, func() bool {
		if sub.Address() == "elsewhere" {
			t.Fatal("a gateway's address was taken")
		}
		return sub.Address() != ""
	})
	if n := hints.Load(); n > 1 || len(answers) > 0 {
		t.Errorf("%d hints, %d answers left", n, len(answers))
	}
}

// An instrumented transport takes the trace from the context of the call.
func TestTransport_SeesTheContextOfTheCall(t *testing.T) {
	type key struct{}
	var seen any
	d := over(t, func(r *http.Request) (*http.Response, error) {
		seen = r.Context().Value(key{})
		return nil, io.EOF
	})
	for verb, ask := range verbs {
		if _ = ask(context.WithValue(t.Context(), key{}, verb), d); seen != verb {
			t.Errorf("%s: the request has the value %v", verb, seen)
		}
	}
}

// A caller that cancels its call does not make the service unavailable.
func TestLook_ACallerWhoGivesItUpIsToldThat(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := clientOf(t, over(t, func(r *http.Request) (*http.Response, error) {
		cancel()
		<-r.Context().Done()
		return nil, r.Context().Err()
	}))
	if _, err := c.Inspect(ctx, "k"); !errors.Is(err, context.Canceled) || errors.Is(err, leasehold.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
