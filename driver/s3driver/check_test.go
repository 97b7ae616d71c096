package s3driver

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/s3driver/internal/fakes3"
)

func TestCheck_ASoundBucketIsGood(t *testing.T) {
	s := fakes3.New()
	all := findings(t, openAt(t, urlOf(t, s.Start(t, 0).URL, "")))
	for _, f := range all {
		if f.Severity != driver.Good {
			t.Errorf("%+v", f)
		}
	}
	if len(all) != 8 || len(s.Keys()) > 0 {
		t.Errorf("%d findings, left %v", len(all), s.Keys())
	}
}

func TestCheck_FindsWhatMakesLocksUnsafe(t *testing.T) {
	rule := func(prefix, action string) string {
		return "<LifecycleConfiguration><Rule><ID>tidy</ID><Filter><Prefix>" + prefix + "</Prefix></Filter><Status>Enabled</Status>" + action +
			"</Rule></LifecycleConfiguration>"
	}
	const expire = "<Expiration><Days>1</Days></Expiration>"
	for _, row := range []struct {
		name, part, text, check string
		lacks                   fakes3.Lacks
		severity                driver.Severity
		says                    string
	}{
		{"versions", "versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>", "versioning", 0, driver.Warning, "noncurrent"},
		{"suspended versions", "versioning", "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>", "versioning", 0, driver.Good, ""},
		{"a rule for all", "lifecycle", rule("", expire), "lifecycle", 0, driver.Warning, `"tidy"`},
		{"a rule for ours", "lifecycle", rule("leasehold/", expire), "lifecycle", 0, driver.Warning, `"tidy"`},
		{"a rule for a part", "lifecycle", rule("leasehold/Y", expire), "lifecycle", 0, driver.Warning, `"tidy"`},
		{"a rule for another prefix", "lifecycle", rule("logs/", expire), "lifecycle", 0, driver.Good, ""},
		{"a rule for versions", "lifecycle", rule("", "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>"),
			"lifecycle", 0, driver.Good, ""},
		{"a replica", "replication", "<ReplicationConfiguration><Role>r</Role><Rule><Status>Enabled</Status></Rule></ReplicationConfiguration>", "replication", 0, driver.Warning, "two stores"},
		{"retention", "object-lock", "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Days>1</Days>" +
			"</DefaultRetention></Rule></ObjectLockConfiguration>", "object lock", 0, driver.Unsafe, "default retention"},
		{"no conditional deletes", "", "", "conditional deletes", fakes3.ConditionalDeletes, driver.Notice, "empty object"},
		{"ignored conditions of deletes", "", "", "conditional deletes", fakes3.IfMatchOfDelete, driver.Notice, "empty object"},
		{"removes a missing object", "", "", "conditional deletes", fakes3.Missing, driver.Notice, "empty object"},
		{"no atomic writes", "", "", "conditional writes", fakes3.Atomicity, driver.Unsafe, "two steps"},
		{"no conditions", "", "", "conditional writes", fakes3.Conditions, driver.Unsafe, "several callers"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := fakes3.New()
			s.Lack(row.lacks)
			if row.part != "" {
				s.Configure(row.part, row.text)
			}
			finds(t, openAt(t, urlOf(t, s.Start(t, 0).URL, "")), row.check, row.severity, row.says)
		})
	}
}

func TestCheck_ComparesClocks(t *testing.T) {
	s := fakes3.New()
	ahead := openAt(t, urlOf(t, s.Start(t, time.Minute).URL, ""))
	finds(t, ahead, "clock", driver.Warning, "differs from ours by")
	finds(t, ahead, "clocks of the store", driver.Good, "")
	var n atomic.Int64
	fronts := []http.Handler{s.Front(0), s.Front(10 * time.Second)}
	balancer := fakes3.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fronts[n.Add(1)%2].ServeHTTP(w, r)
	}))
	finds(t, openAt(t, urlOf(t, balancer.URL, "")), "clocks of the store", driver.Unsafe, "")
}

func TestCheck_AStoreThatDoesNotAnswerIsAnError(t *testing.T) {
	s := fakes3.New()
	d := openAt(t, urlOf(t, s.Start(t, 0).URL, ""))
	s.Inject(func(*http.Request) fakes3.Fault { return fakes3.Cut })
	if _, err := d.Check(t.Context()); !errors.Is(err, driver.ErrUnavailable) {
		t.Error(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "wrong")
	if _, err := openAt(t, urlOf(t, s.Start(t, 0).URL, "")).Check(t.Context()); err == nil {
		t.Error("no error")
	}
}
