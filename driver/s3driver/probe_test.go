package s3driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/s3driver/internal/fakes3"
)

// TestProbe_SucceedsForCallersWithLittleTime checks that a probe outlives its caller, and ends with
// the driver.
func TestProbe_SucceedsForCallersWithLittleTime(t *testing.T) {
	s := fakes3.New()
	store := s.Front(0)
	front := fakes3.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(30 * time.Millisecond)
		store.ServeHTTP(w, r)
	}))
	try := func(d *Driver, key string) error {
		req := requestOf("a")
		req.Key = key
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		_, err := d.Acquire(ctx, req)
		return err
	}
	d := openAt(t, urlOf(t, front.URL, ""))
	err := errors.New("not tried")
	for range 20 {
		if err = try(d, "one"); err == nil {
			break
		}
	}
	if err != nil {
		t.Error(err)
	}
	s.Inject(func(r *http.Request) fakes3.Fault {
		if r.Method == http.MethodPut {
			return fakes3.Hang
		}
		return fakes3.Answered
	})
	d = openAt(t, urlOf(t, front.URL, "&timeout=1m"))
	if err := try(d, "two"); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("while the probe hangs: %v", err)
	}
	began := time.Now()
	if err := d.Close(); err != nil || time.Since(began) > 30*time.Second { // the timeout is a minute
		t.Errorf("Close took %v: %v", time.Since(began), err)
	}
	if _, err := d.bucket.prove(t.Context()); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestProbe_OnlyAnAnswerAboutAConditionIsAVerdict checks the first answer to a write.
func TestProbe_OnlyAnAnswerAboutAConditionIsAVerdict(t *testing.T) {
	for _, row := range []struct {
		status    int
		code      string
		permanent bool
		says      string
	}{
		{http.StatusConflict, "ConditionalRequestConflict", false, "ConditionalRequestConflict"},
		{http.StatusTooManyRequests, "TooManyRequests", false, "TooManyRequests"},
		{http.StatusBadRequest, "RequestTimeout", false, "RequestTimeout"},
		{http.StatusServiceUnavailable, "SlowDown", false, "SlowDown"},
		{http.StatusForbidden, "AccessDenied", true, "allow s3:GetObject, s3:PutObject"},
		{http.StatusBadRequest, "InvalidRequest", true, "without object lock"},
		{http.StatusBadRequest, "Strange", true, "answered 400"},
	} {
		store := fakes3.New().Front(0)
		var writes atomic.Int64
		front := fakes3.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && writes.Add(1) == 1 {
				w.WriteHeader(row.status)
				fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", row.code)
				return
			}
			store.ServeHTTP(w, r)
		}))
		d := openAt(t, urlOf(t, front.URL, ""))
		_, err := d.Acquire(t.Context(), requestOf("a"))
		permanent := errors.Is(err, driver.ErrPermanent)
		if !errors.Is(err, driver.ErrUnavailable) || permanent != row.permanent || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: permanent is %t: %v", row.code, permanent, err)
		}
		acquire(t, d, requestOf("a"), driver.Granted)
	}
}

// TestSweep_RemovesProbesOfDeadProcesses checks that the object of a probe without an end is removed
// later, and that a lock of a prefix that has its name is not.
func TestSweep_RemovesProbesOfDeadProcesses(t *testing.T) {
	s := fakes3.New()
	s.Hold()
	url := s.Start(t, 0).URL
	d := openAt(t, urlOf(t, url, ""))
	s.Inject(func(r *http.Request) fakes3.Fault {
		if r.Method == http.MethodDelete {
			return fakes3.Cut
		}
		return fakes3.Answered
	})
	if _, err := d.bucket.prove(t.Context()); err == nil || len(s.Keys()) != 1 {
		t.Fatalf("%v, left %q", err, s.Keys())
	}
	s.Inject(nil)
	other := openAt(t, strings.Replace(urlOf(t, url, ""), "?", "/leasehold/probe?", 1), roomdriver.WithSweep(0))
	req := requestOf("a")
	req.TTL = 3 * time.Hour
	acquire(t, other, req, driver.Granted)
	l := later{table{roomdriver.FromSwapper(d.bucket), d.bucket}, s}
	if _, err := l.table.Sweep(t.Context(), 1000); err != nil || len(s.Keys()) != 2 {
		t.Errorf("at once: %v, left %q", err, s.Keys())
	}
	s.Advance(step)
	if _, err := l.Sweep(t.Context(), 1000); err != nil {
		t.Error(err)
	}
	if keys := s.Keys(); len(keys) != 1 || keys[0] != other.bucket.object(req.Key) {
		t.Errorf("left %q", keys)
	}
}
